# eager: note is called: fuzz_world.note runs in it, Python of the program that nobody watches there
import torch, functools, magpy
from torch.utils.checkpoint import checkpoint
torch.manual_seed(0)
log = []
scale = 1.0
@magpy.effect
def note(kind, n):
    log.append((kind, n))
noted = functools.partial(note, "noted")
class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(2, 2)
    def forward(self, x, mask, flag=False):
        return (self.linear(x) * mask * scale).tanh_(), flag
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([Layer() for _ in range(2)])
        self.again = functools.partial(checkpoint, use_reentrant=False)
    def forward(self, x, mask):
        noted(len(x))
        for layer in self.layers:
            if self.training:
                x, _ = self.again(layer.__call__, x, mask, True)
            else:
                x, _ = layer(x, mask)
        return x
target = model = Model()
def steps(f):
    global scale
    for i in range(8):
        if i in (3, 5):
            model.train(i == 5)
        y = f(torch.ones(3, 2), torch.ones(3, 1) * i)
        scale *= 0.5
        y.sum().backward()
        yield y, model.layers[0].linear.weight.grad, log
