"""Functions of torch's at whose names the program puts something else, and calls the former ones.

No call is captured then where torch tells of the operation by that name.

Owns wrappers (`F.relu = lambda x: former(x) * 2`), put in place before the first call and between
calls, around functions and methods written in C and in Python.  Does not own names that only torch
itself reads (tests/soundness/test_assumptions.py).
"""

from __future__ import annotations

import contextlib
import functools
import subprocess
import sys
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import magpy
from magpy.models.patched_names import replaced
from tests.backends_of_cases import SAMPLED_BACKENDS
from tests.comparison import assert_same
from tests.soundness.worlds import attempt, run

LINEAR = nn.Linear(2, 2)
USES = {
    "F.relu": (F, "relu", lambda t: F.relu(t)),
    "F.softmax": (F, "softmax", lambda t: F.softmax(t, dim=-1)),
    "F.gelu": (F, "gelu", lambda t: F.gelu(t)),
    "F.linear": (F, "linear", lambda t: F.linear(t, t)),
    "F.layer_norm": (F, "layer_norm", lambda t: F.layer_norm(t, (2,))),
    "F.cross_entropy": (F, "cross_entropy", lambda t: F.cross_entropy(t, torch.tensor([1, 0]))),
    "F.max_pool1d": (F, "max_pool1d", lambda t: F.max_pool1d(t, 1)),
    "F.dropout": (F, "dropout", lambda t: F.dropout(t, 0.5)),
    "F.scaled_dot_product_attention": (
        F,
        "scaled_dot_product_attention",
        lambda t: F.scaled_dot_product_attention(t[None], t[None], t[None]),
    ),
    "_nn.gelu": (torch._C._nn, "gelu", lambda t: torch._C._nn.gelu(t)),
    "torch.relu": (torch, "relu", lambda t: torch.relu(t)),
    "torch.norm": (torch, "norm", lambda t: torch.norm(t)),
    "torch.einsum": (torch, "einsum", lambda t: torch.einsum("ij->i", t)),
    "linalg.norm": (torch.linalg, "norm", lambda t: torch.linalg.norm(t)),
    "tanh": (torch.Tensor, "tanh", lambda t: t.tanh()),
    "add_": (torch.Tensor, "add_", lambda t: t.clone().add_(1)),
    "view": (torch.Tensor, "view", lambda t: t.view(4)),
    "to": (torch.Tensor, "to", lambda t: t.to(torch.float64)),
    "norm": (torch.Tensor, "norm", lambda t: t.norm()),
    "split": (torch.Tensor, "split", lambda t: t.split(1)),
    "__getitem__": (torch.Tensor, "__getitem__", lambda t: t[0]),
    "__add__": (torch.Tensor, "__add__", lambda t: t + 1),
    "__rsub__": (torch.Tensor, "__rsub__", lambda t: 1 - t),
    "item": (torch.Tensor, "item", lambda t: t.sum().item()),
    "nn.Linear.forward": (nn.Linear, "forward", lambda t: LINEAR(t)),
    "nn.Module.__call__": (nn.Module, "__call__", lambda t: LINEAR(t)),
}


def twice(result):
    return tuple(twice(v) for v in result) if isinstance(result, tuple) else result * 2


def direct(former):
    return lambda *args, **kwargs: twice(former(*args, **kwargs))


def of_a_partial(former):
    return lambda *args, **kwargs: twice(functools.partial(former)(*args, **kwargs))


def told_by_its_name(former):
    @functools.wraps(former)
    def wrapper(*args, **kwargs):
        return twice(former(*args, **kwargs))

    return wrapper


def instead(former):
    return lambda *args, **kwargs: 7.0


@contextlib.contextmanager
def put(owner, name, value):
    own = vars(owner).get(name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if own is None:
            delattr(owner, name)
        else:
            setattr(owner, name, own)


def worlds(use, wrapper, first):
    owner, name, call = USES[use]

    def replaced(compile):
        former = getattr(owner, name)
        f = compile(lambda t: (t * 1, call(t), former))
        for i in range(first, first + 5):
            with put(owner, name, wrapper(former)) if i > 2 else contextlib.nullcontext():
                seen = attempt(f, torch.tensor([[1.0, 2.0], [3.0, -4.0]]))
            yield seen if isinstance(seen, Exception) else seen[:2]

    return replaced


def reason(use):
    """Why calls with another function at the name are refused; None: they are captured."""
    owner, name, _ = USES[use]
    told = owner in (F, torch.Tensor, torch._C._nn)
    return f"another function has been put at {owner.__name__}.{name}" if told else None


@pytest.mark.parametrize("backend", SAMPLED_BACKENDS)
@pytest.mark.parametrize("first", [0, 3], ids=["between calls", "before the first"])
@pytest.mark.parametrize("wrapper", [direct, of_a_partial, told_by_its_name, instead])
@pytest.mark.parametrize("use", USES)
def test_what_stands_at_the_name_is_called_and_calls_the_former(use, wrapper, first, backend):
    run(worlds(use, wrapper, first), reason(use), backend)


def by_the_dict(owner, name, value):
    if isinstance(owner, type):
        setattr(owner, name, value)
    else:
        vars(owner)[name] = value


def by_a_patch(owner, name, value):
    mock.patch.object(owner, name, value).start()


@pytest.mark.parametrize("store", [setattr, by_the_dict, by_a_patch])
@pytest.mark.parametrize("use", USES)
@pytest.mark.filterwarnings("ignore")
def test_the_call_itself_puts_a_wrapper_there(use, store):
    owner, name, call = USES[use]

    def replaced(compile):
        former = getattr(owner, name)

        def patched(t):
            before = t + 1
            store(owner, name, twice_is_called)
            after = call(t)
            return before, after, after * 2 if isinstance(after, torch.Tensor) else after

        def twice_is_called(*args, **kwargs):
            return twice(former(*args, **kwargs))

        f = compile(patched)
        for _ in range(4):
            with put(owner, name, former):
                yield attempt(f, torch.tensor([[1.0, 2.0], [3.0, -4.0]]))
            mock.patch.stopall()

    def seen(compile):
        torch.manual_seed(0)
        return list(replaced(compile))

    assert_same(seen(lambda f: magpy.compile(f, backend="eager")), seen(lambda f: f))


@pytest.mark.parametrize("backend", SAMPLED_BACKENDS)
@pytest.mark.parametrize("use", [u for u in USES if not u.startswith(("nn.", "__"))])
def test_the_former_function_is_called_by_who_kept_it(use, backend):
    owner, name, _ = USES[use]

    def kept(compile):
        former = getattr(owner, name)
        arguments = {
            "F.softmax": (0,),
            "F.linear": (torch.ones(2, 2),),
            "F.layer_norm": ((2,),),
            "F.cross_entropy": (torch.tensor([1, 0]),),
            "F.max_pool1d": (1,),
            "F.dropout": (0.5,),
            "F.scaled_dot_product_attention": (torch.ones(2, 2), torch.ones(2, 2)),
            "add_": (1,),
            "view": (4,),
            "to": (torch.float64,),
            "split": (1,),
        }.get(use, ())
        if use == "torch.einsum":
            f = compile(lambda t: former("ij->i", t))
        else:
            f = compile(lambda t: former(t * 1, *arguments))
        for i in range(6):
            wrapped = put(owner, name, instead(former)) if i in (2, 3) else contextlib.nullcontext()
            argument = torch.tensor([[1.0, 2.0], [3.0, -4.0]])
            argument = argument.sum() if use == "item" else argument
            with wrapped:
                seen = attempt(f, argument)
            yield seen

    def seen(compile):
        torch.manual_seed(0)
        return list(kept(compile))

    assert_same(seen(lambda f: magpy.compile(f, backend=backend)), seen(lambda f: f))


def test_nothing_is_replaced_unless_somebody_does():
    assert replaced() == ""
    with put(F, "relu", Instead(F.relu)):
        assert replaced() == "torch.nn.functional.relu"
    with put(torch.Tensor, "tanh", torch.Tensor.sin):
        assert replaced() == "Tensor.tanh"
    with put(torch.Tensor, "a_name_of_the_programs", print):
        assert replaced() == ""
    assert replaced() == ""


def test_the_refusal_names_the_name_and_ends_with_it():
    former = torch.Tensor.tanh
    f = magpy.compile(lambda t: t.tanh() + 1, backend="eager")
    try:
        torch.Tensor.tanh = direct(former)
        assert torch.equal(f(torch.ones(2)), former(torch.ones(2)) * 2 + 1)
        assert "another function has been put at Tensor.tanh" in magpy.stats(f).reasons[0]
        torch.Tensor.tanh = former
        for _ in range(3):
            assert torch.equal(f(torch.ones(2)), former(torch.ones(2)) + 1)
    finally:
        del torch.Tensor.tanh
    assert magpy.stats(f).captures == 1 and magpy.stats(f).hits == 2


class Watched(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        former = torch.Tensor.tanh
        torch.Tensor.tanh = lambda t: former(t) * 2
        try:
            return super().__torch_function__(func, types, args, kwargs or {})
        finally:
            del torch.Tensor.tanh


class Counts(torch.overrides.TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.seen = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.filterwarnings("ignore")
def test_a_name_is_replaced_within_an_operation_and_below_a_mode():
    def within(t):
        return (t.as_subclass(Watched) + 1).as_subclass(torch.Tensor) * 2

    def below(t):
        former = F.relu
        with Counts() as counts:
            F.relu = lambda x, **given: former(x, **given) * 2
            try:
                result = F.relu(t) + 1
            finally:
                F.relu = former
        return result, counts.seen

    depth = torch._C._len_torch_function_stack()
    for f in (within, below):
        compiled = magpy.compile(f, backend="eager")
        for _ in range(4):
            assert_same(compiled(torch.ones(2)), f(torch.ones(2)))
            assert torch._C._len_torch_function_stack() == depth


def test_a_program_that_is_refused_handles_no_exception_of_magpys():
    def f(t):
        raise ValueError(sys.exc_info())

    c = magpy.compile(f, backend="eager")
    with put(F, "relu", direct(F.relu)), pytest.raises(ValueError, match="None, None, None") as e:
        c(torch.ones(2))
    assert e.value.__context__ is None


def test_wrappers_of_wrappers_that_count():
    def counted(compile):
        former, state = F.relu, {"n": 0}

        def counts(t, *args, **kwargs):
            state["n"] += 1
            return former(t, *args, **kwargs) * state["n"]

        f = compile(lambda t: F.relu(t) + nn.ReLU()(t))
        for i in range(8):
            if i == 4:
                state["n"] = 0
            wrapper = counts if i < 6 else direct(counts)
            with put(F, "relu", wrapper):
                seen = f(torch.ones(1))
            yield seen, state["n"]

    run(counted, "another function has been put at the name")


class Hooked:
    """A wrapper that binds what it wraps, as those of wrapt do."""

    def __init__(self, former):
        self.former = former

    def __get__(self, o, cls=None):
        return functools.partial(self.call, self.former.__get__(o, cls))

    def call(self, f, *args):
        return f(*args) * 2


@pytest.mark.parametrize(
    "wrapper",
    [Hooked, lambda f: functools.partialmethod(direct(f)), lambda f: staticmethod(direct(f))],
)
@pytest.mark.parametrize("name", ["tanh", "norm", "__add__"])
def test_wrappers_that_give_another_object(name, wrapper):
    def hooked(compile):
        former = getattr(torch.Tensor, name)
        f = compile(lambda t: t + 1 if name == "__add__" else getattr(t, name)())
        for i in range(5):
            there = i in (2, 3)
            with put(torch.Tensor, name, wrapper(former)) if there else contextlib.nullcontext():
                seen = attempt(f, torch.ones(2))
            yield seen

    run(hooked, "another function has been put at the name")


class Instead(nn.Module):
    def __init__(self, former):
        super().__init__()
        self.former = former

    def forward(self, *args, **kwargs):
        return twice(self.former(*args, **kwargs))


@pytest.mark.parametrize("name", ["max_pool1d", "relu", "softmax"])
@pytest.mark.parametrize("wrapper", [Instead, lambda f: torch.no_grad()(direct(f)), staticmethod])
def test_wrappers_of_other_kinds(name, wrapper):
    def other(compile):
        former = getattr(F, name)
        arguments = {"max_pool1d": (1,), "relu": (), "softmax": (0,)}[name]
        f = compile(lambda t: getattr(F, name)(t, *arguments))
        for i in range(5):
            with put(F, name, wrapper(former)) if i > 1 else contextlib.nullcontext():
                seen = attempt(f, torch.ones(2, 2))
            yield seen

    run(other, "another function has been put at the name")


BEFORE = """
import torch
former, tanh = torch._C._nn.gelu, torch.Tensor.tanh
torch._C._nn.gelu = lambda t: former(t) * 2
torch.Tensor.tanh = lambda t: tanh(t) * 2
import magpy
t = torch.ones(2)
f = magpy.compile(lambda t: torch._C._nn.gelu(t) + t.tanh(), backend="eager")
for _ in range(3):
    assert torch.equal(f(t), former(t) * 2 + tanh(t) * 2)
assert "another function has been put at" in magpy.stats(f).reasons[0], magpy.stats(f)
"""


def test_what_was_replaced_before_magpy_came():
    done = subprocess.run([sys.executable, "-c", BEFORE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


class Net(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t):
        return net(t)

    @staticmethod
    def backward(ctx, gradient):
        return net(gradient)


class Heard(torch.Tensor):
    names: list[str] = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.names.append(getattr(func, "__name__", ""))
        return super().__torch_function__(func, types, args, kwargs or {})


class Hears(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        Heard.names.append(getattr(func, "__name__", ""))
        return func(*args, **(kwargs or {}))


def net(t):
    return F.relu(t) + torch._C._nn.gelu(t) + t.tanh()


def differentiated(t):
    t = t.clone().requires_grad_()
    net(t).sum().backward()
    return t.grad


def under_a_mode(t):
    with Hears():
        return net(t)


def again(t, reentrant):
    t = t.clone().requires_grad_()
    return torch.utils.checkpoint.checkpoint(net, t, use_reentrant=reentrant)


WHERE = {
    "checkpoint": lambda t: again(t, False),
    "reentrant checkpoint": lambda t: again(t, True),
    "grad": torch.func.grad(lambda t: net(t).sum()),
    "vmap": torch.func.vmap(net),
    "jvp": lambda t: torch.func.jvp(net, (t,), (t,)),
    "autograd.Function": lambda t: Net.apply(t),
    "backward": differentiated,
    "mode": under_a_mode,
    "subclass": lambda t: net(t.as_subclass(Heard)).as_subclass(torch.Tensor),
    "modules": nn.Sequential(nn.ReLU(), nn.GELU(), nn.Tanh()),
    "branch": lambda t: net(t) if net(t).sum() > 0 else t,
    "map": lambda t: list(map(net, [t, t])),
    "key": lambda t: sorted([t.sum(), t.mean()], key=torch.Tensor.tanh),
    "no_grad": torch.no_grad()(net),
    "autocast": torch.autocast("cpu")(net),
    "item": lambda t: net(t).sum().item() * t,
}


@pytest.mark.parametrize("backend", SAMPLED_BACKENDS)
@pytest.mark.parametrize("where", WHERE)
def test_former_functions_are_called_wherever_operations_are(where, backend):
    def wrapped(compile):
        names = []
        f = compile(lambda t: WHERE[where](t))
        with contextlib.ExitStack() as wrappers:
            for owner, name in ((F, "relu"), (torch._C._nn, "gelu"), (torch.Tensor, "tanh")):
                wrappers.enter_context(put(owner, name, direct(getattr(owner, name))))
            for _ in range(3):
                Heard.names.clear()
                seen = f(torch.tensor([[1.0, -2.0], [0.5, 3.0]]))
                names.append(list(Heard.names))
        yield seen, names

    run(wrapped, "another function has been put at the name", backend)
