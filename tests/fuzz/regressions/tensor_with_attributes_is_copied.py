# eager: a tensor is copied by copy.deepcopy
import copy
import torch
net = torch.nn.Linear(2, 2)
net.register_buffer("b", torch.ones(2))
net.b.tag = "old"

def f(t):
    made = copy.deepcopy(net)
    made.b.add_(1)
    return copy.deepcopy(t), copy.deepcopy([t])[0], made(t) + made.b, made
target = f

def steps(f):
    tagged, other = torch.ones(2), torch.ones(2)
    tagged.tag = [1]
    other.other = 5
    for t in (tagged, tagged, torch.ones(2), other, torch.nn.Buffer(torch.ones(2)), torch.ones(2)):
        yield [getattr(x, "__dict__", None) for x in attempt(f, t)]
    tagged.tag[0] = 2
    yield [getattr(x, "__dict__", None) for x in attempt(f, tagged)]
    tagged.tag = "t"
    yield [getattr(x, "__dict__", None) for x in attempt(f, tagged)]
    net.b.tag = "new"
    for _ in range(2):
        made = attempt(f, torch.ones(2))[3]
        yield made.b.__dict__
    del net.b.tag
    for _ in range(2):
        made = attempt(f, torch.ones(2))[3]
        yield made.b.__dict__
