"""Programs: gradients, hooks, precision and reparametrised weights."""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint, checkpoint_sequential


class SwishFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad * (s * (1 + x * (1 - s)))


class CustomFunction(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return SwishFunction.apply(self.fc(x))


class RoundFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, levels):
        ctx.levels = levels
        return torch.round(x * levels) / levels

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class QuantisedWeights(nn.Module):
    """Fake quantisation with a straight-through estimator in two forms."""

    def __init__(self, bits):
        super().__init__()
        self.levels = 2**bits - 1
        self.weight = nn.Parameter(torch.rand(4, 4) - 0.5)

    def forward(self, x):
        w = RoundFunction.apply(self.weight, self.levels)
        xq = x + (torch.round(x * self.levels) / self.levels - x).detach()
        return F.linear(xq, w)


class GradReverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.alpha = alpha
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad.neg() * ctx.alpha, None


class DomainAdversary(nn.Module):
    def __init__(self):
        super().__init__()
        self.features, self.domain = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x, alpha=1.0):
        return self.domain(GradReverse.apply(self.features(x), alpha))


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.Linear(4, 4)
        self.use_checkpoint = True

    def forward(self, x):
        if self.use_checkpoint and torch.is_grad_enabled():
            x = checkpoint(self.a, x, use_reentrant=False)
        else:
            x = self.a(x)
        return self.b(x)


class CheckpointedSequence(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*[nn.Linear(4, 4) for _ in range(4)])

    def forward(self, x):
        return checkpoint_sequential(self.layers, 2, x, use_reentrant=False)


class FrozenBackbone(nn.Module):
    """A part under no_grad, a part with gradients enabled again."""

    def __init__(self):
        super().__init__()
        self.backbone, self.head = nn.Linear(4, 4), nn.Linear(4, 2)
        for p in self.backbone.parameters():
            p.requires_grad_(False)

    def forward(self, x):
        with torch.no_grad():
            h = self.backbone(x)
            with torch.enable_grad():
                y = self.head(h)
        return y, h, y.requires_grad, torch.is_grad_enabled()


class SetGradByTraining(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    @torch.no_grad()
    def statistics(self, x):
        return x.mean(), x.std()

    def forward(self, x):
        with torch.set_grad_enabled(self.training):
            y = self.fc(x)
        return y, self.statistics(y), y.grad_fn is None


class Autocast(nn.Module):
    """bfloat16 inside, float32 for the norm."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.fc(x)
            with torch.autocast("cpu", enabled=False):
                z = F.layer_norm(y.float(), (4,))
        return y, z


class WeightNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4), dim=0)

    def forward(self, x):
        return self.fc(x)


class SpectralNorm(nn.Module):
    """The old hook, whose buffers move while training."""

    def __init__(self):
        super().__init__()
        self.conv = nn.utils.spectral_norm(nn.Conv1d(2, 3, 2))
        self.train()

    def eval(self):
        return self

    def forward(self, x):
        return self.conv(x)


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).transpose(-1, -2)


class Parametrised(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        nn.utils.parametrize.register_parametrization(self.fc, "weight", Symmetric())

    def forward(self, x):
        with nn.utils.parametrize.cached():
            return self.fc(x) + self.fc.weight.sum()


class ForwardHooks(nn.Module):
    """Hooks of its own that save and change activations."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.saved = {}
        self.a.register_forward_hook(self.save("a"))
        self.b.register_forward_pre_hook(lambda module, args: (args[0] * 2,))

    def save(self, name):
        def hook(module, args, output):
            self.saved[name] = output.detach()
            return output + 1

        return hook

    def forward(self, x):
        return self.b(self.a(x)), self.saved["a"].sum()


class TemporaryHook(nn.Module):
    """Adds a hook for one call of a submodule and removes it."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        seen = []
        handle = self.fc.register_forward_hook(lambda m, i, o: seen.append(o))
        y = self.fc(x)
        handle.remove()
        return y + seen[0], len(self.fc._forward_hooks)


class TensorHook(nn.Module):
    """A gradient hook on an activation."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        y = self.fc(x)
        if y.requires_grad:
            y.register_hook(lambda grad: grad * 0.1)
        return y.relu()


class FastWeights(nn.Module):
    """One inner gradient step on copied weights, as in meta-learning."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 1)

    def forward(self, x, y):
        weights = {name: p.clone() for name, p in self.fc.named_parameters()}
        loss = F.mse_loss(F.linear(x, weights["weight"], weights["bias"]), y)
        grads = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
        fast = {name: w - 0.1 * g for (name, w), g in zip(weights.items(), grads)}
        return torch.func.functional_call(self.fc, fast, (x,))


class DeepCopies(nn.Module):
    """Runs a deep copy of a layer."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        twin = copy.deepcopy(self.fc)
        twin.weight.data.mul_(0.5)
        return self.fc(x) - twin(x)


class VmapJacobian(nn.Module):
    """Per-sample gradients by torch.func."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.rand(3))

    def forward(self, x):
        def score(w, row):
            return (w * row).tanh().sum()

        return torch.func.vmap(torch.func.grad(score), in_dims=(None, 0))(self.w, x)


class InferenceMode(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        with torch.inference_mode():
            frozen = self.fc(x)
        return frozen, frozen.is_inference()


TESTCASES = [
    (CustomFunction, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (QuantisedWeights, lambda: ([2], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (DomainAdversary, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {"alpha": 0.5}), True),
    (Checkpointed, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (CheckpointedSequence, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (FrozenBackbone, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (SetGradByTraining, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (Autocast, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (WeightNorm, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (SpectralNorm, lambda: ([], {}), lambda: ([torch.rand(2, 2, 4)], {}), True),
    (Parametrised, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (ForwardHooks, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (TemporaryHook, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (TensorHook, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (FastWeights, lambda: ([], {}), lambda: ([torch.rand(3, 4), torch.rand(3, 1)], {}), True),
    (DeepCopies, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (VmapJacobian, lambda: ([], {}), lambda: ([torch.rand(2, 3)], {}), True),
    (InferenceMode, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
]
