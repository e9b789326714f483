"""`Tensor.data` assigned ahead of a value that depends on data: undone where that differs."""

import numpy as np
import pytest
import torch
from torch import nn

import magpy
from tests.backends_of_cases import SAMPLED_BACKENDS
from tests.comparison import assert_same

# What is assigned to the data of a parameter, or done around that.
ASSIGNS = {
    "average": "p.data = p.data * 0.5 + q.data * 0.5",
    "view": "p.data = q.data.t()",
    "shape": "p.data = torch.cat([p.data, p.data])[:4]",
    "each_other": "p.data = q.data.clone(); q.data = p.data * 2",
    "shared": "p.data = q.data",
    "changed_before": "p.data.add_(1); p.data = p.data * 2",
    "changed_after": "p.data = p.data * 2; p.data.add_(1)",
    "and_back": "o = p.data; p.data = q.data; p.data = o",
    "shared_and_written": "p.data = q.data; p.data.mul_(0.5)",
    "written_without_data": "p.data = q.data.t()\n    with torch.no_grad(): p.mul_(0.5)",
    "inner_written": "t = torch.empty(0); t.data = q.data; t.mul_(0.5)",
    "view_written": "t = torch.empty(0); t.data = q.data[1:]; t[0].mul_(0.5); p.data.add_(1)",
    "both_written": "o = p.data; p.data = q.data; p.data.add_(1); p.data = o; p.data.mul_(0.5)",
    "first_owner_dies": "p.data = torch.zeros(3, 3); v = p.data[1:]; v.add_(1)",
    "of_a_buffer": "b.data = b.data + 1; p.data = p.data + b.sum()",
}
# What then depends on data.
CHECKS = {
    "branch": "return x.sum() + 1 if x.sum() > 0 else (x * p.sum()).sum()",
    "number": "return x[: int(x.abs().sum()) % 3].sum() + p.sum()",
    "raises": "return x[int(x[0] * 10)].sum() + p.sum()",
    "of_the_new_data": "return p.sum() * 2 if p.sum() > 2 else p.sum()",
}


@pytest.mark.parametrize("backend", SAMPLED_BACKENDS)
@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("assign", ASSIGNS)
def test_data_is_as_eager_leaves_it(assign, check, backend):
    space = {"torch": torch}
    exec(f"def f(x, p, q, b):\n    {ASSIGNS[assign]}\n    {CHECKS[check]}", space)

    def world(f):
        torch.manual_seed(0)
        p, q = nn.Parameter(torch.randn(3, 3)), nn.Parameter(torch.randn(3, 3))
        b, held, view = torch.zeros(3), p.data, p.detach()
        seen = []
        for _ in range(8):
            try:
                result = f(torch.randn(3), p, q, b).detach()
            except Exception as error:
                result = type(error), str(error)
            state = [t.detach().clone() for t in (p, q, b, held, view)]
            # What a compiled graph writes to counts as changed, `data` or not.
            versions = (p._version, q._version, b._version) if backend == "eager" else ()
            seen.append((result, state, versions, p.data_ptr() == q.data_ptr()))
            if assign == "shape":
                p.data = torch.randn(3, 3)
        return seen

    compiled = magpy.compile(space["f"], backend=backend)
    assert_same(world(compiled), world(space["f"]))
    stats = magpy.stats(compiled)
    assert all(check == "raises" and "raises a" in reason for reason in stats.reasons)
    assert stats.hits or check == "raises"


@pytest.mark.parametrize("held", ["given", "in_a_closure"])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_momentum_encoder_is_one_capture(backend, held):
    class Contrast(nn.Module):
        def __init__(self):
            super().__init__()
            self.query, self.key = nn.Linear(4, 6), nn.Linear(4, 6).requires_grad_(False)
            self.register_buffer("queue", torch.zeros(6, 8))
            self.register_buffer("place", torch.zeros(1, dtype=torch.long))

        def forward(self, x):
            with torch.no_grad():
                for a, b in zip(self.query.parameters(), self.key.parameters(), strict=True):
                    b.data = b.data * 0.9 + a.data * 0.1
                keys = self.key(x)
            scores = self.query(x) @ self.queue.clone()
            place = int(self.place)
            self.queue[:, place : place + len(x)] = keys.T
            self.place[0] = (place + len(x)) % 8
            return scores.sum()

    def world(wrap):
        torch.manual_seed(0)
        model = Contrast()
        f = wrap(model if held == "given" else lambda x: model(x))
        seen = []
        for _ in range(6):
            f(torch.randn(2, 4)).backward()
            seen.append([t.detach().clone() for t in model.state_dict().values()])
        return seen, f

    wanted, _ = world(lambda f: f)
    found, compiled = world(lambda f: magpy.compile(f, backend=backend))
    assert_same(found, wanted)
    assert magpy.stats(compiled).captures == 1
    assert magpy.stats(compiled).hits == 5
    assert magpy.stats(compiled).share > 0.8


def test_memory_is_compared_as_it_lay_when_the_call_began():
    def f(p, x):
        p.data = x
        x.add_(1)
        return p.sum()

    def world(f):
        p, seen = nn.Parameter(torch.zeros(3)), []
        given = [torch.arange(3.0), torch.ones(3), torch.ones(3) * 2]
        for x in given:
            seen.append((f(p, x).detach(), p.detach().clone(), x.clone()))
        for _ in range(3):  # they share memory from here on
            seen.append((f(p, x).detach(), p.detach().clone(), x.clone()))
        return seen

    compiled = magpy.compile(f, backend="eager")
    assert_same(world(compiled), world(f))
    assert magpy.stats(compiled).captures == 2
    assert magpy.stats(compiled).hits == 4


def alias_of_an_argument(p, d, x):
    p.data = x[1]
    p.data.add_(1)
    return x * 2


def other_dtype(p, d, x):
    d.data = d.data.float()
    return x * 2


def size_before(p, d, x):
    k = x.shape[0]
    x.data = x.data[:3]
    return k, x


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", [alias_of_an_argument, other_dtype, size_before])
def test_a_compiler_is_not_asked_to_follow_it(program, backend):
    def world(f):
        p, d, seen = nn.Parameter(torch.ones(4)), torch.ones(4, dtype=torch.float64), []
        for n in (8, 9, 10, 8, 3, 8, 9):
            x = torch.zeros(n, 4)
            d.data = d.data.double()
            seen.append((f(p, d, x), p.detach().clone(), d.clone(), x.clone()))
        return seen

    compiled = magpy.compile(program, backend=backend)
    assert_same(world(compiled), world(program))
    assert magpy.stats(compiled).hits


def test_a_swap_of_tensors_is_left_to_eager():
    def f(t, other):
        made = t * 2
        torch.utils.swap_tensors(made, torch.ones(2))
        torch.utils.swap_tensors(t, other)
        return made + t

    compiled = magpy.compile(f, backend="eager")
    for g in (f, compiled):
        t, other = torch.zeros(2), torch.full((2,), 3.0)
        assert g(t, other).tolist() == [4.0, 4.0]
        assert (t.tolist(), other.tolist()) == ([3.0, 3.0], [0.0, 0.0])
    assert "getweakrefs is called" in magpy.stats(compiled).reasons[0]


def test_nothing_holds_the_autograd_graph_of_a_call_that_has_swapped_tensors():
    """torch poisons the nodes of what is swapped, as long as they live."""

    def f(t, other):
        made = (t * 2).sum()
        torch.utils.swap_tensors(t, other)
        t.backward(torch.ones(2))
        return float(made) + float(t.grad.sum())

    worlds = []
    for compiled in (False, True):
        g = magpy.compile(f, backend="eager") if compiled else f
        t, other = nn.Parameter(torch.ones(2)), nn.Parameter(torch.full((2,), 3.0))
        worlds.append([(g(t, other), t.grad.tolist(), t.tolist()) for _ in range(4)])
        if compiled:
            assert magpy.stats(g).reasons[0].endswith("getweakrefs is called")
    assert worlds[1] == worlds[0]


@pytest.mark.parametrize("given", ["p", "p[:]", "p.data", "torch.from_numpy(p.numpy())"])
@pytest.mark.parametrize("look", ["w.grad.sum().item()", "w.grad.data.numpy()[0].item()"])
def test_a_pass_adds_to_a_gradient_that_gets_other_data_later(given, look):
    space = {"torch": torch}
    exec(
        "def f(w, p):\n"
        "    w.sum().backward()\n"
        f"    number = {look}\n"
        f"    w.grad.data = {given}\n"
        f"    return number, {look}",
        space,
    )

    def world(f):
        w, seen = nn.Parameter(torch.tensor([1.0, 2.0])), []
        w.grad = torch.ones(2)
        for i in range(6):
            p = torch.full((2,), float(i))
            seen.append((f(w, p), w.grad.clone(), p.clone()))
        return seen

    compiled = magpy.compile(space["f"], backend="eager")
    assert_same(world(compiled), world(space["f"]))


def test_data_that_is_an_arrays_is_written_through_either_tensor():
    def f(p, given):
        a = np.zeros(2)
        t, u = torch.from_numpy(a), torch.ones(2, dtype=torch.float64)
        u.data = t
        (t if given else u).add_(p)
        return float(a.sum()), a.tolist()

    def world(f, given):
        return [f(torch.full((2,), v, dtype=torch.float64), given) for v in (0.0, 0.0, 1.0, 2.0)]

    for given in (True, False):
        with pytest.warns(magpy.MagpyWarning, match="shares memory with an array of the call"):
            found = world(magpy.compile(f, backend="eager"), given)
        assert_same(found, world(f, given))


class Sharpness(torch.optim.Optimizer):
    """Sharpness-aware minimization as it is written for PyTorch: up the gradient, and back."""

    def __init__(self, parameters, rho=0.05):
        super().__init__(parameters, {"rho": rho, "lr": 0.1, "momentum": 0.9})
        self.base = torch.optim.SGD(self.param_groups, lr=0.1, momentum=0.9)
        self.param_groups = self.base.param_groups

    @torch.no_grad()
    def up(self):
        (group,) = self.param_groups
        norm = torch.stack([p.grad.norm() for p in group["params"]]).norm()
        for p in group["params"]:
            self.state[p]["old"] = p.data.clone()
            p.add_(p.grad * (group["rho"] / (norm + 1e-12)))
        self.zero_grad()

    @torch.no_grad()
    def back(self):
        for p in self.param_groups[0]["params"]:
            p.data = self.state[p]["old"]
        self.base.step()
        self.zero_grad()


class Snapshot:
    """The weights of before are kept, and put back where the step has made the loss worse."""

    def __init__(self, parameters):
        self.parameters = list(parameters)

    def up(self):
        self.old = [p.data.clone() for p in self.parameters]
        for p in self.parameters:
            p.data -= 0.1 * p.grad
            p.grad = None

    def back(self):
        for p, old in zip(self.parameters, self.old, strict=True):
            p.data = old
            p.data -= 0.05 * p.grad
            p.grad = None


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "python"])
@pytest.mark.parametrize("kind", [Sharpness, Snapshot])
def test_weights_that_are_put_back_are_those_of_before(kind, backend):
    def world(wrap):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
        optimizer = kind(model.parameters())

        @wrap
        def step(x, y):
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.up()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.back()
            return loss.item()

        seen = []
        for i in range(6):
            loss = step(torch.full((4, 3), 0.1 * i) + torch.eye(4, 3), torch.tensor([0, 1, 1, 0]))
            seen.append((loss, [p.detach().clone() for p in model.parameters()]))
        return seen, step

    def python(gm, inputs):
        return gm.forward

    used = python if backend == "python" else backend
    wanted, _ = world(lambda f: f)
    found, compiled = world(lambda f: magpy.compile(f, backend=used))
    assert_same(found, wanted)
    assert magpy.stats(compiled).share > (0.99 if kind is Sharpness else 0.8)


@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_pass_after_the_assignment_goes_by_what_eager_goes_by(backend, retain):
    def world(wrap):
        p = nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))

        @wrap
        def f(x):
            loss = (x * p * p).sum()
            if retain:
                loss.backward(retain_graph=True)
            p.data = p.data * 2
            loss.backward()
            gradient, p.grad = p.grad, None
            return gradient

        return [(f(torch.full((3,), float(i))), p.detach().clone()) for i in range(4)], f

    wanted, _ = world(lambda f: f)
    found, compiled = world(lambda f: magpy.compile(f, backend=backend))
    assert_same(found, wanted)
    assert magpy.stats(compiled).hits


FORMED = {
    "t_": lambda x: x.t_(),
    "unsqueeze_": lambda x: x.unsqueeze_(0),
    "transpose_": lambda x: x.transpose_(0, 1),
    "swapaxes_": lambda x: x.swapaxes_(0, 1),
    "squeeze_": lambda x: x[:1].squeeze_(0),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", FORMED)
def test_a_form_given_in_place_stays_where_data_is_read(name, backend):
    def f(x):
        FORMED[name](x)
        return x, x.data * 2

    compiled = magpy.compile(f, backend=backend)
    for _ in range(3):
        x, y = (torch.arange(6.0).view(2, 3) for _ in range(2))
        assert_same((compiled(x), x), (f(y), y))
    assert magpy.stats(compiled).hits == 2


def put_back_with_aliases(p, q):
    old = p.data.clone()
    with torch.no_grad():
        p.add_(1)
    seen = p.detach() * 1
    p.data = old
    with torch.no_grad():
        p.mul_(2)
        p.data.add_(seen)
    return seen


def put_back_beside_a_sharer(p, q):
    old = p.data.clone()
    with torch.no_grad():
        p.add_(1)
        q.mul_(2)
    p.data = old
    with torch.no_grad():
        q.add_(p)
        p.sub_(0.5)
    return q * 1


def written_by_both_names(p, q):
    old = p.data.clone()
    p.data = old
    old.add_(1)
    with torch.no_grad():
        p.mul_(2)
    return old * 1, p.detach() * 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(
    "program", [put_back_with_aliases, put_back_beside_a_sharer, written_by_both_names]
)
def test_a_copy_that_is_put_back_and_what_else_has_the_memory(program, shared, backend):
    def world(f):
        p = nn.Parameter(torch.ones(3))
        q = nn.Parameter(p.data if shared else torch.ones(3))
        held, view, seen = p.data, p.detach()[:2], []
        for i in range(6):
            if i == 4:
                p.data = torch.full((3,), 2.0)
            result = f(p, q)
            seen.append((result, [t.detach().clone() for t in (p, q, held, view)]))
        return seen

    compiled = magpy.compile(program, backend=backend)
    assert_same(world(compiled), world(program))
    assert magpy.stats(compiled).hits
