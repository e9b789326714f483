"""Tensors: metadata, aliasing, mutation, gradients, subclasses.

PYTEST_DONT_REWRITE: the programs must be what they look like.
"""

import types
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import magpy
from tests.comparison import assert_same
from tests.soundness.worlds import attempt, case, check_all

CASES = []


def grid():
    return torch.arange(6.0).reshape(2, 3)


@case(CASES)
def every_kind_of_metadata(compile):
    f = compile(lambda t: (t + t, t.shape, t.stride(), t.dtype, t.is_contiguous(), t.numel()))
    g = grid()
    for t in (
        g,
        g.t(),
        g[:, ::2],
        g.expand(2, 2, 3),
        g.double(),
        g.half(),
        g.int(),
        g > 2,
        g[:0],
        g.sum(),
        g.to(torch.complex64),
        g.to(torch.complex64).conj(),
        g.unsqueeze(-1).contiguous(memory_format=torch.contiguous_format),
        g,
    ):
        yield attempt(f, t), attempt(f, t)


@case(CASES)
def gradients_of_arguments_and_parameters(compile):
    w = torch.ones(3)
    f = compile(lambda t: ((t * w).sum(), (t * w).requires_grad))
    yield f(grid())
    t = grid().requires_grad_()
    for _ in range(2):
        out, _ = f(t)
        out.backward()
        yield out, t.grad
    w.requires_grad_()
    f(grid())[0].backward()
    yield w.grad
    with torch.no_grad():
        seen = f(t)
    yield seen
    yield f(t.detach()), f(t * 2)[0].grad_fn is not None


@case(CASES)
def leaves_and_results_know_their_graph(compile):
    m = nn.Linear(3, 3)
    f = compile(lambda t: (m(t), m.weight, m(t).detach(), t))
    t = grid().requires_grad_()
    for _ in range(2):
        out, w, d, same = f(t)
        yield out.requires_grad, w.is_leaf, d.requires_grad, same is t, w is m.weight
        yield torch.autograd.grad(out.square().sum(), [t, m.weight], create_graph=True)


@case(CASES, compilers="AOTAutograd has no second derivatives, and says so")
def gradients_of_gradients(compile):
    m = nn.Linear(3, 3)
    f = compile(lambda t: m(t).square())
    t = grid().requires_grad_()
    for _ in range(2):
        g = torch.autograd.grad(f(t).sum(), [t, m.weight], create_graph=True)
        yield g, torch.autograd.grad(g[0].sum(), m.weight)


@case(CASES)
def same_object_or_different_objects(compile):
    def f(a, b):
        a.mul_(2)
        return a + b, a is b

    f = compile(f)
    for _ in range(2):
        t = grid()
        yield f(t, t), t
        u, v = grid(), grid()
        yield f(u, v), u, v


@case(CASES)
def memory_overlaps_or_not(compile):
    def f(a, b):
        a.add_(10)
        return b * 1

    f = compile(f)
    for first, second in (
        (slice(0, 3), slice(3, 6)),
        (slice(0, 4), slice(2, 6)),
        (slice(0, 3), slice(3, 6)),
        (slice(0, 6), slice(0, 6)),
        (slice(2, 6), slice(0, 4)),
    ):
        t = torch.arange(6.0)
        yield f(t[first], t[second]), t


@case(CASES)
def operations_raise_where_memory_overlaps_partly(compile):
    def f(a, b):
        try:
            torch.add(a, b, out=a)
        except RuntimeError as error:
            return str(error)
        return b * 1

    for order in ((1, 0, 1, 0), (0, 1, 0, 1)):
        compiled = compile(f)
        for where in order:
            t = torch.arange(6.0)
            yield compiled(t[where : where + 4], t[1:5]), t


@case(CASES)
def argument_overlaps_a_parameter(compile):
    w = torch.arange(6.0)

    def f(a):
        a.add_(1)
        return w * 2

    f = compile(f)
    yield f(torch.zeros(3)), f(torch.zeros(3))
    yield f(w[:3]), w
    yield f(w), w
    yield f(torch.zeros(3)), w


@case(CASES)
def results_alias_arguments_and_each_other(compile):
    def f(t):
        y = t * 2
        return t, t.view(-1), t[0], y, y.t(), y[1:], (y, y)

    f = compile(f)
    for _ in range(2):
        t = grid()
        same, flat, row, y, yt, tail, two = f(t)
        yield same is t, two[0] is y, two[1] is y
        flat[0] = 50.0
        y.fill_(7.0)
        yield t, row, yt, tail, two
        yield flat.data_ptr() == t.data_ptr(), y.data_ptr() == yt.data_ptr(), row._base is t


@case(CASES)
def in_place_operations_of_every_kind(compile):
    def f(t):
        t[0] = 5.0
        t[:, 1] += 2
        t.view(-1)[3:] *= 3
        t.t()[2].copy_(torch.tensor([8.0, 9.0]))
        torch.add(t, 1, out=t)
        t.clamp_(max=30)
        t.index_fill_(1, torch.tensor([0]), -1.0)
        return t.sum()

    f = compile(f)
    for _ in range(3):
        t = grid()
        version = t._version
        yield f(t), t, t._version > version


@case(CASES)
def in_place_on_a_leaf_that_requires_grad(compile):
    def f(w):
        w.add_(1)
        return w * 2

    f = compile(f)
    w = torch.ones(3, requires_grad=True)
    for _ in range(3):
        yield attempt(f, w), w
    with torch.no_grad():
        seen = f(w), f(w)
    yield seen, w


@case(CASES)
def resize_and_storage_changes(compile):
    def f(t):
        t.unsqueeze_(0)
        return t.shape

    f = compile(f)
    for _ in range(3):
        t = grid()
        yield f(t), t.shape, t


@case(CASES)
def data_and_set_on_outside_tensors(compile):
    p = nn.Parameter(torch.ones(3))

    def f(t):
        p.data.mul_(2)
        with torch.no_grad():
            p.add_(1)
        return t * p.detach()

    f = compile(f)
    for _ in range(4):
        yield f(grid()), p
    p.data = torch.zeros(3)
    yield f(grid()), p, p.requires_grad


@case(CASES)
def buffers_are_updated_and_rebound(compile):
    class Ema(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(3))
            self.register_buffer("count", torch.zeros((), dtype=torch.long))
            self.history = []

        def forward(self, t):
            self.count += 1
            self.mean = self.mean * 0.9 + t.mean(0) * 0.1
            self.history.append(self.mean)
            return t - self.mean

    m = Ema()
    f = compile(m)
    for i in range(4):
        yield f(grid() + i), m.mean, m.count, m.history, m.history[-1] is m.mean
    m.mean = torch.ones(3)
    yield f(grid()), m.mean, list(m.state_dict())


@case(CASES)
def batch_norm_momentum_and_tracking(compile):
    m = nn.BatchNorm1d(3, momentum=0.3)
    f = compile(m)
    for i in range(3):
        yield f(grid() + i), dict(m.state_dict())
    m.momentum = None
    yield f(grid()), dict(m.state_dict())
    m.eval()
    yield f(grid()), dict(m.state_dict())


@case(CASES)
def accumulated_gradients_and_hooks_on_tensors(compile):
    m = nn.Sequential(nn.Linear(3, 3), nn.GELU(), nn.Linear(3, 1))
    f = compile(m)
    log = []
    m[0].weight.register_hook(lambda g: log.append(g.sum()) or g * 2)
    for i in range(3):
        f(grid() + i).sum().backward()
        yield [p.grad for p in m.parameters()], log
    m.zero_grad(set_to_none=True)
    yield [p.grad for p in m.parameters()]


@case(CASES, refused="a hook runs later, in the autograd engine")
def hook_registered_inside(compile):
    def f(t, log):
        y = t * 2
        y.register_hook(lambda g: log.append(g.sum().item()))
        return (y * y).sum()

    f = compile(f)
    for _ in range(3):
        t, log = grid().requires_grad_(), []
        f(t, log).backward()
        yield t.grad, log


@case(CASES)
def optimizers_step_between_calls(compile):
    m = nn.Linear(3, 1)
    opt = torch.optim.AdamW(m.parameters(), lr=0.1)
    f = compile(lambda t: F.mse_loss(m(t), t.sum(1, keepdim=True)))
    for i in range(4):
        opt.zero_grad()
        loss = f(grid() * (i + 1))
        loss.backward()
        opt.step()
        yield loss, dict(m.state_dict())


@case(CASES)
def whole_training_step_inside(compile):
    m = nn.Linear(3, 1)
    opt = torch.optim.SGD(m.parameters(), lr=0.01, momentum=0.9)

    def step(t):
        opt.zero_grad()
        loss = m(t).square().mean()
        loss.backward()
        opt.step()
        return loss.detach()

    step = compile(step)
    for i in range(3):
        yield step(grid() + i), dict(m.state_dict())


@case(CASES)
def functions_with_their_own_backward(compile):
    class Sign(torch.autograd.Function):
        @staticmethod
        def forward(ctx, t, k):
            ctx.save_for_backward(t)
            ctx.k = k
            return t.sign() * k

        @staticmethod
        def backward(ctx, g):
            (t,) = ctx.saved_tensors
            return g * ctx.k * (t.abs() < 2), None

    f = compile(lambda t, k: Sign.apply(t * 2, k).sum())
    for k in (1, 1, 3, 1):
        t = (grid() - 2).requires_grad_()
        out = f(t, k)
        out.backward()
        yield out, t.grad


@case(CASES)
def gradient_modes_inside(compile):
    w = torch.ones(3, requires_grad=True)

    def f(t):
        with torch.no_grad():
            a = t * w
            with torch.enable_grad():
                b = t * w
        with torch.set_grad_enabled(False):
            c = w + 1
        return a, b, c, t * w, torch.is_grad_enabled()

    f = compile(f)
    yield f(grid()), f(grid())
    with torch.no_grad():
        seen = f(grid())
    yield seen


@case(CASES)
def gradient_computed_inside(compile):
    def f(t):
        t = t.detach().requires_grad_()
        y = (t**3).sum()
        (g,) = torch.autograd.grad(y, t, create_graph=True)
        (h,) = torch.autograd.grad(g.sum(), t)
        return g.detach(), h

    f = compile(f)
    yield f(grid()), f(grid() + 1)


@case(CASES)
def checkpointed_segment(compile):
    from torch.utils.checkpoint import checkpoint

    m = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    f = compile(lambda t: checkpoint(m, t, use_reentrant=False).sum())
    for i in range(3):
        t = (grid() + i).requires_grad_()
        out = f(t)
        out.backward()
        yield out, t.grad, m[0].weight.grad


@case(CASES)
def tensor_subclass_arguments(compile):
    class Tagged(torch.Tensor):
        pass

    f = compile(lambda t: (t * 2, type(t).__name__))
    for t in (grid(), grid().as_subclass(Tagged), nn.Parameter(grid()), grid()):
        yield f(t), f(t)


@case(CASES)
def attributes_on_tensors(compile):
    def f(t):
        t.seen = getattr(t, "seen", 0) + 1
        return t * t.seen

    f = compile(f)
    t = grid()
    for _ in range(4):
        yield f(t), t.seen
    t.seen = 10
    yield f(t), t.seen


@case(CASES)
def lists_and_dicts_of_tensors(compile):
    def f(batch):
        out = {k: v * 2 for k, v in batch.items() if isinstance(v, torch.Tensor)}
        out["n"] = len(batch["names"])
        batch["seen"] = True
        return out

    f = compile(f)
    for names in ([], ["a"], ["a", "b"], ["c", "d"]):
        batch = {"a": grid(), "b": grid() + 1, "names": names}
        yield f(batch), batch
    batch = {"b": grid(), "a": grid(), "names": []}
    yield f(batch), batch


@case(CASES)
def sizes_that_vary(compile):
    m = nn.Linear(3, 2)

    def f(t):
        b, n = t.shape
        return m(t).reshape(b * 2), torch.arange(b), torch.zeros(b, n), b

    f = compile(f)
    for b in (2, 2, 3, 4, 5, 1, 7, 0, 3):
        t = torch.ones(b, 3)
        yield f(t), f(t)


@case(CASES)
def numbers_that_vary(compile):
    f = compile(lambda t, k: (t * k, k + 1, [k]))
    for k in (1, 2, 3, 4, 0, -1, 1.5, 2.5, 3.5, True, 10**12):
        yield f(grid(), k), f(grid(), k)


@case(CASES)
def legacy_constructors_take_sizes_and_data(compile):
    def f(t):
        size = t.size()
        return (
            torch.FloatTensor(size).fill_(1),
            torch.LongTensor(t.shape).zero_(),
            torch.Tensor(size[1:]).zero_(),
            t.new(size).fill_(2),
            t.new(torch.Size([])).fill_(3),
            torch.FloatTensor((2, 3)),
            t.new([1.0, 2.0]),
            t.new(2, t.shape[0]).zero_(),
            torch.Tensor(t),
        )

    f = compile(f)
    for t in (grid(), grid(), grid().double().t(), grid()):
        yield attempt(f, t), attempt(f, t)


@case(CASES)
def sparse_and_meta(compile):
    f = compile(lambda t: t + t)
    for t in (grid(), grid().to_sparse(), grid().to("meta"), grid()):
        yield attempt(f, t), attempt(f, t)


@case(CASES, compilers="AOTAutograd takes no compressed sparse tensors")
def compressed_sparse(compile):
    f = compile(lambda t: t + t)
    for t in (grid(), grid().to_sparse_csr(), grid()):
        yield attempt(f, t), attempt(f, t)


class Refusing(torch.Tensor):
    """Takes no operation, and counts those that it hears of."""

    heard: list = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.heard.append(getattr(func, "__name__", ""))
        raise TypeError("not taken")


@case(CASES)
def operations_that_a_subclass_does_not_take(compile):
    heard, given = [], torch.ones(2).as_subclass(Refusing)

    def compared(other):
        return given == other, given != other

    def differentiated(p):
        return torch.autograd.grad(given, [p])

    compared, differentiated = compile(compared), compile(differentiated)
    for other in (zip, zip, 3, "a"):
        Refusing.heard = heard = []
        yield attempt(compared, other), attempt(differentiated, torch.ones(2)), heard


test_tensors = check_all(CASES)


def test_a_subclass_given_to_a_function_of_autograd_hears_only_the_program():
    class Logged(torch.Tensor):
        seen = []

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            cls.seen.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs or {})

    class Same(torch.autograd.Function):
        @staticmethod
        def forward(ctx, t):
            return t

    logged = torch.ones(2).as_subclass(Logged)

    def f():
        return torch.einsum("i,i->", torch.relu(logged), Same.apply(torch.relu(logged)))

    f()
    heard = list(Logged.seen)
    Logged.seen.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is heard is an effect, and refused
        magpy.compile(f, backend="eager")()
    assert Logged.seen == heard


class Untaken(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return NotImplemented


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "operation",
    [
        lambda t: torch.add(t, 1),
        lambda t: t + 1,
        lambda t: torch.ones(2) + t,
        lambda t: t.add_(1),
        lambda t: t[0],
        lambda t: t.shape,
        lambda t: torch.mm(t, t),
        lambda t: torch.nn.functional.linear(t, t),
        lambda t: torch.nn.functional.softmax(t, 0),
        lambda t: torch.fft.fft(t),
        lambda t: torch.linalg.inv(t),
        lambda t: torch.split(t, 1),
        lambda t: t.backward(),
        lambda t: t.numpy(),
    ],
)
def test_what_no_class_takes_raises_as_in_eager(operation):
    def told(f):
        with pytest.raises(TypeError) as raised:
            f(torch.ones(2).as_subclass(Untaken))
        return str(raised.value)

    f = magpy.compile(operation, backend="eager")
    wanted = told(operation)
    assert [told(f), told(f)] == [wanted, wanted]


def test_how_a_view_without_gradients_was_made_decides_what_may_be_done_to_it():
    w = torch.nn.Parameter(torch.ones(4))
    base = torch.arange(12.0)
    with torch.no_grad():
        forbidden = base[:4]

    def given():
        rows = torch.arange(8.0).view(2, 4)
        return [rows[0], forbidden, rows.clone()[0], rows.unbind(0)[0], torch.ones(4), forbidden[:]]

    def run(wrap):
        calls = []

        def tried(x):
            try:
                torch.rand(1)
                x.mul_(w)
                return "fine"
            except RuntimeError:
                return "caught"

        def counted(x):
            calls.append(1)
            x.mul_(w)

        fs = wrap(tried), wrap(counted)
        found = [(attempt_text(f, x), len(calls)) for f in fs for _ in range(2) for x in given()]
        return found, fs

    def attempt_text(f, x):
        try:
            return f(x)
        except RuntimeError as e:
            return str(e)

    want, _ = run(lambda f: f)
    got, compiled = run(lambda f: magpy.compile(f, backend="eager"))
    assert got == want
    tried, counted = map(magpy.stats, compiled)
    assert counted.hits >= 2
    # Where it is fine: nobody can take back that the tensor is a part of autograd's graph.
    assert any("mul_ raises a RuntimeError" in reason for reason in tried.reasons)


def test_parts_of_complex_tensors_are_assigned():
    def f(z, x, own):
        t = z.clone() if own else z
        t.real = x
        setattr(t, "imag", x * 2)
        torch.Tensor.real.__set__(t, x + 1)
        return t * 2

    def world(f):
        seen = []
        for i in range(6):
            z, x = torch.zeros(2, dtype=torch.complex64), torch.full((2,), float(i))
            seen.append((f(z, x, i % 2), z, z._version))
        return seen

    compiled = magpy.compile(f, backend="eager")
    with pytest.warns(magpy.MagpyWarning, match="tensor.real = ... writes to a tensor"):
        found = world(compiled)
    assert_same(found, world(f))


def test_torch_tells_of_all_that_it_keeps_of_a_tensor_but_its_parts():
    class Told(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, f, types, args=(), kwargs=None):
            told.append(f)
            return f(*args, **(kwargs or {}))

    silent = set()
    for name, attribute in vars(torch._C.TensorBase).items():
        if isinstance(attribute, types.GetSetDescriptorType):
            z = torch.zeros(2, dtype=torch.complex64)
            try:
                value, told = attribute.__get__(z), []
                with Told():
                    attribute.__set__(z, value)
            except (AttributeError, RuntimeError):
                continue  # not to be read, or to be written
            if not told:
                silent.add(name)
    assert silent == {"real", "imag"}


class _Heard(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return None


def _set_item(t, value):
    t[_Heard] = value
    return t


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("value", [{}, [1], None, 2j, 1.5, torch.ones(1), torch.float32], ids=str)
def test_what_is_set_is_looked_at_before_an_index_hears_of_it(value):
    f = magpy.compile(_set_item, backend="eager")
    for _ in range(3):
        outcomes = []
        for g in (_set_item, f):
            try:
                outcomes.append(g(torch.zeros(2), value).tolist())
            except (TypeError, RuntimeError) as e:
                outcomes.append(repr(e))
        assert outcomes[0] == outcomes[1]
    assert (magpy.stats(f).hits == 2) == isinstance(value, torch.Tensor)


def test_an_attribute_with_the_name_of_a_torch_method_is_read_in_each_call():
    def program(x):
        return x + x.values + x.indices[0]

    compiled = magpy.compile(program, backend="eager")
    for i in range(4):
        x = torch.ones(3)
        x.values, x.indices = i // 2, [i // 2]
        assert torch.equal(compiled(x), program(x))
    assert magpy.stats(compiled).hits >= 1
