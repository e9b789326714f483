"""Python and TorchScript that run where nobody watches each line, and decide by data.

They are the functions of `torch.autograd.Function`, checkpointed blocks, hooks in autograd's engine
and scripted functions: what they do in another call was not seen in the watched one.
"""

import random

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import magpy
from tests.soundness.worlds import attempt, case, check_all

CASES = []


def of(*values, grad=False):
    return [torch.full((2,), v, requires_grad=grad) for v in values]


class Checked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t):
        if t.sum() < 0:
            raise ValueError("negative")
        return t * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


def checked_block(t):
    if t.isnan().any():
        raise FloatingPointError("nan")
    return t * 2


@case(CASES, refused="a call that is done as a whole looks at data, or raises")
def functions_that_raise_for_data(compile):
    def caught(t):
        try:
            return Checked.apply(t) + 1
        except ValueError:
            return t - 1

    for f in (Checked.apply, caught):
        f = compile(lambda t, f=f: f(t))
        for t in of(-1.0, 1.0, 1.0, -1.0, 1.0):
            yield attempt(f, t)


@case(CASES, refused="a call that is done as a whole looks at data, or raises")
def checkpointed_blocks_that_raise_for_data(compile):
    for reentrant in (False, True):
        f = compile(lambda t, r=reentrant: checkpoint(checked_block, t, use_reentrant=r))
        for t in of(1.0, float("nan"), 1.0, 1.0, grad=True):
            yield attempt(f, t)


@torch.jit.script
def scripted_check(t):
    if bool(t.sum() < 0):
        raise ValueError("negative")
    return t


@torch.jit.script
def scripted_choice(s, t):
    chosen = s
    if bool(s.sum() > 0):
        chosen = t
    return chosen


@torch.jit.script
def scripted_change(t):
    if bool(t.sum() > 0):
        t.mul_(2)
    return t


@torch.jit.script
def scripted_relu(t):
    return t.relu_()


@torch.jit.script
def scripted_add(t):
    t.add_(1)
    return t


@torch.jit.script
def scripted_add_and_nothing_else(t):
    t.add_(1)


@torch.jit.script
def scripted_swish(t):
    if t.dim() > 3:
        raise ValueError("too many dimensions")
    return t * torch.sigmoid(t)


traced_relu = torch.jit.trace(lambda t: t.relu_(), torch.ones(2))


@case(CASES, refused="a TorchScript function is called that decides by data")
def scripted_functions_that_decide_by_data(compile):
    def unused(t):
        scripted_check(t)
        return t * 1

    for f in (lambda t: scripted_check(t) * 1, unused, scripted_change):
        f = compile(lambda t, f=f: f(t))
        for t in of(1.0, -1.0, 1.0, -1.0):
            yield type(attempt(f, t)), t
    f = compile(lambda s, t: scripted_choice(s, t))
    for s in of(-1.0, 1.0, 2.0):
        yield f(s, torch.full((2,), 7.0)), s


@case(CASES, compilers="AOTAutograd does not see what TorchScript writes to")
def scripted_functions_that_write(compile):
    def unused(t):
        scripted_add(t)
        return t + 1

    def inside(t):
        own = t * 1
        scripted_add(own)
        return own * 2, own

    def nothing(t):
        scripted_add_and_nothing_else(t)
        return t

    for f in (scripted_relu, traced_relu, scripted_add, unused, inside, nothing):
        f = compile(lambda t, f=f: f(t))
        for t in of(-1.0, -5.0, 3.0):
            yield f(t), t


@case(CASES, captures=1)
def scripted_functions_that_only_compute(compile):
    f = compile(lambda t: scripted_swish(t))
    for i in range(3):
        yield f(torch.full((2,), float(i)))


@case(CASES, refused="TorchScript holds what it goes by")
def scripted_modules(compile):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.norm = nn.Linear(2, 2), nn.BatchNorm1d(2)

        def forward(self, t):
            return self.norm(self.layer(t))

    net = torch.jit.script(Net())
    g = compile(lambda t: net(t))
    for _ in range(3):
        yield g(torch.randn(4, 2)), net.norm.running_mean


@case(CASES, refused="a hook that looks at data may change what the call looks at")
def hooks_that_decide_by_data(compile):
    weight = nn.Parameter(torch.ones(2))
    seen, total = [], torch.zeros(1)

    def hook(gradient):
        if gradient.sum() > 0:
            seen.append(1)
            total.add_(1)

    weight.register_hook(hook)

    def left(t):
        loss = (weight * t).sum()
        loss.backward()
        return loss * 2 if loss > 0 else loss

    def looks(t):
        (weight * t).sum().backward()
        return len(seen)

    for f in (left, looks):
        f = compile(f)
        for t in of(-1.0, 1.0, -1.0, 1.0, 1.0):
            yield f(t), seen, total, weight.grad


@case(CASES, refused="a hook that looks at data, ahead of a value of data")
def hooks_that_change_their_tensor(compile):
    weight = nn.Parameter(torch.ones(3))

    def step(p):
        if p.grad.sum() > 0:
            with torch.no_grad():
                p.add_(p.grad)

    weight.register_post_accumulate_grad_hook(step)

    def f(t):
        (weight * t).sum().backward()
        return weight * 2 if weight.sum() > 3.5 else weight * 1

    f = compile(f)
    for v in (-1.0, 3.0, 1.0, -1.0):
        yield f(torch.full((3,), v)), weight


@case(CASES, refused="a hook that looks at data, ahead of a value of data")
def hooks_that_draw(compile):
    weight = nn.Parameter(torch.ones(2))
    weight.register_hook(lambda g: g * random.random() if g.sum() > 0 else None)

    def f(t):
        weight.grad = None
        loss = (weight * t).sum()
        loss.backward()
        return weight.grad.sum() if loss > 0 else loss

    f = compile(f)
    for t in of(-1.0, 1.0, -1.0, 1.0, 1.0):
        yield f(t), weight.grad


class Steps(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t, weight):
        ctx.weight = weight
        return t * weight

    @staticmethod
    def backward(ctx, gradient):
        if gradient.sum() > 0:
            ctx.weight.data.add_(1)
        return None, gradient


@case(CASES, refused="a backward pass that looks at data, ahead of a value of data")
def backward_functions_that_decide_by_data(compile):
    weight = nn.Parameter(torch.ones(2))

    def f(t):
        y = Steps.apply(t, weight).sum() * t.sum()
        y.backward()
        return y * 2 if y > 0 else y

    f = compile(f)
    for t in of(-1.0, 1.0, -1.0, 1.0, 1.0):
        yield f(t), weight, weight.grad


@case(CASES, refused="a call that is done as a whole looks at data")
def blocks_and_functions_with_effects_for_some_data(compile):
    seen = []

    class Noting(torch.autograd.Function):
        @staticmethod
        def forward(ctx, t):
            if t.sum() > 0:
                seen.append(1)
            return t * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    def block(t):
        if t.sum() > 0:
            seen.append(2)
        return t * 2

    def left(t):
        y = checkpoint(block, t, use_reentrant=False)
        return y * 2 if y.sum() > 1 else y

    def looks(t):
        return Noting.apply(t), len(seen)

    for f in (left, looks):
        f = compile(f)
        for t in of(-1.0, 1.0, -1.0, 1.0, 1.0, grad=True):
            yield f(t), seen


@case(CASES, refused="a call that is done as a whole looks at data")
def functions_that_decide_by_shapes_of_data(compile):
    seen = []

    class Noting(torch.autograd.Function):
        @staticmethod
        def forward(ctx, t):
            if t[t > 0].numel() > 1:
                seen.append(1)
            return t * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    def block(t):
        if len(t.nonzero()) < 2:
            raise ValueError("few")
        return t * 2

    def checked(t):
        return checkpoint(block, t, use_reentrant=False)

    f, g = compile(lambda t: (Noting.apply(t), len(seen))), compile(checked)
    for t in of(-1.0, 0.0, 1.0, 1.0, -1.0, 0.0, grad=True):
        yield f(t), seen, attempt(g, t)


@case(CASES, refused="torch.initial_seed is called after the call itself has seeded")
def seeds_that_the_call_sets(compile):
    def f(n):
        torch.manual_seed(n)
        return torch.initial_seed(), torch.rand(1)

    f = compile(f)
    for n in range(5):
        yield f(n)


test_unseen = check_all(CASES)


def test_a_mask_that_is_assigned_decides_nothing():
    class Masked(torch.autograd.Function):
        @staticmethod
        def forward(ctx, t):
            weights = torch.ones(t.shape)
            weights[t > 0] = 3.0
            return t * weights.reshape(t.size())

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    compiled = magpy.compile(lambda t: Masked.apply(t), backend="eager")
    for t in of(1.0, -2.0, 3.0, grad=True):
        assert torch.equal(compiled(t), Masked.apply(t))
    assert magpy.stats(compiled).hits == 2


def test_a_whole_call_that_does_not_look_at_data_is_captured():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, t):
            if t.shape[0] > 5:
                raise ValueError("too long")
            return t * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 2

    compiled = magpy.compile(lambda t: Twice.apply(t), backend="eager")
    for t in of(1.0, 2.0, 3.0, grad=True):
        assert torch.equal(compiled(t), t * 2)
    assert magpy.stats(compiled).hits == 2
