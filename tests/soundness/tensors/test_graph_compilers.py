"""What compilers of graphs (AOTAutograd and what stands on it) must not make of a program.

Every case of the other files runs with "aot_eager" too; these are about what such a compiler sees.
"""

from __future__ import annotations

import copy
import threading
import warnings

import pytest
import torch
from torch import nn

import magpy
from magpy.backends import runner
from magpy.replay.support import autocast_nesting
from tests.comparison import assert_same
from tests.soundness.worlds import attempt, case, check_all

CASES = []


class Tagged(torch.Tensor):
    """A tensor class without a say in operations."""


def grid():
    return torch.arange(6.0).reshape(2, 3)


@case(CASES)
def a_tensor_is_transposed_in_place_after_a_view_was_made(compile):
    def f(x):
        y = x + 1
        first = y[0]
        y.t_()
        return y, first, y[0]

    f = compile(f)
    for _ in range(3):
        yield f(grid())
        x = grid().requires_grad_()
        y, first, _ = f(x)
        (first.sum() * 2 + y.sum()).backward()
        yield x.grad


@case(CASES)
def a_part_of_a_larger_tensor_is_changed(compile):
    def f(x):
        x.add_(1)
        y, flat = x.view_as(x), x[1:].contiguous()
        flat.mul_(5)
        return y.stride(), x[1:].stride(), flat, x.as_strided((2, 3), (3, 1)) * 1

    f = compile(f)
    for n in (4, 4, 5, 6):
        for make in (lambda x: x[:, :4], lambda x: x[:, ::2], lambda x: x[:n].T):
            whole = torch.arange(float(n * 8)).reshape(n, 8)
            yield f(make(whole)), whole


@case(CASES)
def a_view_made_in_inference_mode(compile):
    def f(x):
        with torch.inference_mode():
            part = x[1:]
        return part, x.view(-1)

    f = compile(f)
    for _ in range(3):
        part, flat = f(grid().requires_grad_())
        yield part._is_view(), flat._is_view(), attempt(part.add_, 1)


@case(CASES)
def views_made_at_once_of_what_is_changed(compile):
    def f(x):
        a, b = x.unbind()
        x.mul_(2)
        return a, b

    f = compile(f)
    for _ in range(3):
        x = grid()
        yield f(x), x
        a, b = f(grid().requires_grad_() * 1)
        yield attempt(a.sum)


@case(CASES)
def a_subclass_is_changed_in_place(compile):
    t = grid().as_subclass(Tagged)

    def f(x):
        t.add_(x)
        t[0] += 1
        return t * 2, t.sum()

    f = compile(f)
    for i in range(3):
        out, total = f(torch.tensor(float(i)))
        yield out, type(out) is Tagged, type(total) is Tagged, t


@case(CASES)
def a_subclass_hears_what_the_program_does(compile):
    class Heard(torch.Tensor):
        """A tensor class that counts the operations that it takes part in."""

        seen = 0

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            cls.seen += 1
            return super().__torch_function__(func, types, args, kwargs or {})

    t = grid().as_subclass(Heard)
    f = compile(lambda x: (x + t, x * 2))
    for _ in range(3):
        out, _ = f(grid())
        yield type(out) is Heard, Heard.seen


@case(CASES)
def a_parameter_is_made_in_the_call(compile):
    def f(x):
        p = nn.Parameter(x * 2)
        return p, p * 3, (p + 1).detach()

    f = compile(f)
    for _ in range(3):
        p, y, d = f(grid())
        y.sum().backward()
        yield type(p) is nn.Parameter, p, p.grad, y, d


@case(CASES)
def an_argument_shares_memory_with_what_is_changed(compile):
    w = torch.arange(8.0)
    kept = [w[2:5], w[5:]]

    def f(a):
        a.mul_(2)
        return [k + 1 for k in kept], w.sum()

    f = compile(f)
    for part in (slice(0, 2), slice(1, 4), slice(0, 2), slice(4, 8), slice(2, 5), slice(0, 2)):
        yield f(w[part]), w
    yield f(torch.ones(2)), w


@case(CASES)
def changed_tensors_overlap_at_another_place(compile):
    def f(a, b):
        a.add_(b.sum())
        b[0] = 0.0
        return a * b

    f = compile(f)
    for i, j in ((0, 2), (2, 0), (0, 0), (1, 2), (0, 4), (2, 0), (4, 0)):
        t = torch.arange(8.0)
        yield f(t[i : i + 4], t[j : j + 4]), t


@case(CASES)
def the_form_of_an_argument_is_changed(compile):
    def f(t):
        t.t_()
        t.unsqueeze_(0)
        return t * 2

    f = compile(f)
    for _ in range(3):
        t = grid()
        yield f(t), t


@case(CASES)
def results_are_views_of_each_other(compile):
    def f(t):
        y = t * 2
        return y, y.t(), y[0], y.view(-1), y.detach()

    f = compile(f)
    for _ in range(3):
        y, yt, row, flat, apart = f(grid())
        yield row._base is y, flat._base is y, yt._base is y, apart.data_ptr() == y.data_ptr()
        w = torch.ones(3, requires_grad=True)
        row.mul_(w)
        yield y, yt, flat, apart
        yield [v.requires_grad for v in (y, yt, flat, apart)]
        (y.sum() + flat.sum()).backward()
        yield w.grad


@case(CASES)
def results_are_views_of_what_is_not_returned(compile):
    def f(t):
        y = t * 2
        parts = y[:1], y[1:]
        row = y[0].detach()
        y.add_(1)
        return parts, row

    f = compile(f)
    for leaf in (False, True, False, True):
        (a, b), row = f(grid().requires_grad_(leaf))
        yield a, b, row, a.requires_grad, row.requires_grad
        with torch.no_grad():
            a.zero_()
        yield a, b, row


@case(CASES)
def recurrent_layers_are_trained(compile):
    torch.manual_seed(0)
    models = [nn.LSTM(3, 4, num_layers=2), nn.GRU(3, 4), nn.RNN(3, 4)]
    compiled = [compile(m) for m in models]
    for _ in range(2):
        for m, f in zip(models, compiled, strict=True):
            out, _ = f(grid()[:, None] / 6)
            out.sum().backward()
            yield out, [p.grad for p in m.parameters()]


@case(CASES)
def sequences_of_several_lengths_are_packed(compile):
    torch.manual_seed(0)
    m = nn.LSTM(3, 4, batch_first=True)

    def f(t, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(t, lengths, batch_first=True)
        return nn.utils.rnn.pad_packed_sequence(m(packed)[0], batch_first=True)

    f = compile(f)
    for lengths in ([3, 2], [3, 2], [2, 1], [3, 2]):
        t = torch.linspace(-1, 1, 18).reshape(2, 3, 3)
        out, n = f(t, torch.tensor(lengths))
        out.sum().backward()
        yield out, n, m.weight_ih_l0.grad


@case(CASES)
def padded_rows_of_a_transformer_in_eval_mode(compile):
    # Eager takes kernels of its own then, by way of nested tensors, which leave padding at zero.
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    m = nn.TransformerEncoder(layer, 2).eval()
    attention = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    f, g = compile(m), compile(lambda t: attention(t, t, t))
    mask = torch.tensor([[False, False, True], [False, True, True]])
    with torch.no_grad():
        for i in range(3):
            t = torch.linspace(-1, 1, 48).reshape(2, 3, 8) + i
            out = f(t, src_key_padding_mask=mask)
            yield out, out[0, -1].count_nonzero()
            yield f(t), g(t), [v.stride() for v in g(t)]


@case(CASES)
def a_program_asks_who_hears_of_operations(compile):
    class Heard(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return super().__torch_function__(func, types, args, kwargs or {})

    def f(t):
        asked = torch.overrides.has_torch_function((t,))
        return asked, torch.overrides.has_torch_function_unary(t), t + 1

    f = compile(f)
    for t in (grid(), grid(), grid().as_subclass(Heard), grid()):
        yield f(t)[:2]


@case(CASES)
def an_operation_fails_where_modes_are_switched(compile):
    def grad(x, i):
        with torch.no_grad():
            return (x * 2)[i]

    def autocast(x, i):
        with torch.autocast("cpu", torch.bfloat16):
            return torch.mm(x, x)[i]

    def inference(x, i):
        with torch.inference_mode():
            y = (x * 2)[i]
        return y + 1

    def modes():
        x = torch.ones(2, 2, requires_grad=True)
        return (
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            torch.is_autocast_enabled("cpu"),
            autocast_nesting(),
            (x * 2).requires_grad,
            torch.mm(x, x).dtype,
        )

    compiled = [compile(f) for f in (grad, autocast, inference)]
    for i in (0, 1, 2, 7, 1, 7, 0):
        for f in compiled:
            yield attempt(f, torch.ones(3, 3), torch.tensor([i])), modes()


@case(CASES)
def inference_mode_inside(compile):
    weight = torch.full((3, 3), 0.5, requires_grad=True)

    def all_of_it(x):
        with torch.inference_mode():
            return torch.relu(x @ weight) + 1

    def a_part(x):
        with torch.inference_mode():
            y = x @ weight
        z = x @ weight
        with torch.inference_mode():
            a = y + z
            with torch.inference_mode(False):
                b = z * 2
            c = y * 2
        return a, b, c, z + 1

    def a_view(x):
        with torch.inference_mode():
            y = x * 2
            y.mul_(3)
            return y, y[0], x[0]

    @torch.inference_mode()
    def decorated(x):
        with torch.autocast("cpu", torch.bfloat16):
            return x @ weight

    for f in (all_of_it, a_part, a_view, decorated):
        f = compile(f)
        for n in (1.0, 2.0, 3.0):
            r = f(torch.full((3, 3), n))
            results = r if isinstance(r, tuple) else (r,)
            yield r, [t.is_inference() for t in results], torch.is_inference_mode_enabled()
        with torch.no_grad():
            r = f(torch.ones(3, 3))
        yield r
        with torch.inference_mode():
            r = f(torch.ones(3, 3))
        yield r


@case(CASES)
def a_later_graph_changes_a_view(compile):
    def of_the_run(x):
        base = x * 2 + torch.rand(3, 4)
        y = base[:, 1:3]
        y.add_(y.sum().item())
        r = y[1:].contiguous()
        r.mul_(5)
        q = y.reshape(-1)[1:]
        q.mul_(2)
        return base, y, r, q, y[1:].stride()

    def of_an_input(x):
        y = x[:, :2]
        x.mul_(torch.rand(1).item())
        y.mul_(y.sum().item())
        z = y[1:].contiguous()
        z.add_(1)
        return x, y, z

    for f in map(compile, (of_the_run, of_an_input)):
        for i in range(4):
            x = torch.arange(12.0).reshape(3, 4) + i
            yield f(x), x


@case(CASES)
def a_compiler_stops_where_modes_are_switched(compile):
    def f(t):
        with torch.set_grad_enabled(False), torch.autocast("cpu", torch.bfloat16):
            t[t > 0] = 3.0  # AOTAutograd takes no number of a tensor
            return torch.mm(t, t)

    f = compile(f)
    for _ in range(3):
        yield f(torch.eye(2)), torch.is_grad_enabled(), autocast_nesting()


@case(CASES)
def the_same_is_drawn_twice(compile):
    @compile
    def f(t):
        a, b = torch.randn_like(t), torch.randn_like(t)
        c, d = torch.zeros(2).exponential_(), torch.zeros(2).exponential_()
        torch.randint_like(t, 5), torch.randint_like(t, 5)
        return t * a, t * b, c, d

    for _ in range(3):
        yield f(torch.ones(2, requires_grad=True))


@case(CASES)
def views_of_parameters_where_gradients_are_off(compile):
    """They are leaves that require grad, and stay so where anybody can tell."""
    w = nn.Parameter(torch.arange(12.0).reshape(4, 3))

    @torch.no_grad()
    def given(n):
        part = w[:n]
        return part, part[0], part.expand(2, n, 3), (part * 2)[0]

    def used_with_gradients(x):
        with torch.no_grad():
            part = w[:2]
            row = part[1]
            other = w.T.unsqueeze(0)
            y = x @ other[0]
        return (row * x).sum() + y.sum(), part[0] * 2

    @torch.no_grad()
    def looked_at(x):
        part = w[1:]
        return x * part[0].norm().item(), part[1].tolist()

    @torch.no_grad()
    def changed(x):
        w[:2].mul_(x)
        row = w[3]
        row[0] = 7
        return w[0] + x, row * 1

    given, used, looked_at, changed = map(compile, (given, used_with_gradients, looked_at, changed))
    x = torch.tensor([1.0, -2.0, 0.5])
    for n in (2, 3, 2):
        found = given(n)
        yield found, [(v.is_leaf, v.requires_grad) for v in found]
        with torch.enable_grad():
            found[0].sum().backward()
        yield found[0].grad, w.grad
        total, double = used(x)
        (total * 3 + double.sum()).backward()
        yield total, double, w.grad, looked_at(x)
        found = changed(x)
        yield found, w.detach()


def test_views_of_parameters_do_not_cut_a_graph_that_serves():
    class Embedded(nn.Module):
        def __init__(self):
            super().__init__()
            self.token = nn.Parameter(torch.randn(1, 1, 4))
            self.places = nn.Parameter(torch.randn(1, 9, 4))
            self.mix = nn.Linear(4, 4)

        def forward(self, x):
            x = torch.cat([self.token.expand(len(x), -1, -1), x], 1)
            x = x + self.places[:, : x.shape[1]]
            return nn.functional.linear(self.mix(x), self.mix.weight.t()[:2])

    m = Embedded()
    c = magpy.compile(m, backend="aot_eager", fullgraph=True)
    for modes in (torch.no_grad, torch.inference_mode, torch.enable_grad):
        with modes():
            for _ in range(2):
                x = torch.randn(2, 5, 4)
                assert_same(c(x), m(x))
    s = magpy.stats(c)
    assert (s.captures, s.hits, s.segments) == (3, 3, [1, 1, 1])


@case(CASES)
def leaves_of_autograd_are_made(compile):
    @compile
    def f(t):
        a = torch.tensor([1.0, 2.0], requires_grad=True)
        b = torch.zeros(2, requires_grad=True)
        c = torch.autograd.Variable(t * 3, requires_grad=True)
        d = torch.nn.Parameter(t * 2)
        leaves = a, b, c, d
        return *leaves, a * t + b * c * d, torch.rand(2, requires_grad=True), torch.rand(2)

    for _ in range(3):
        *leaves, y, drawn, z = f(torch.ones(2))
        (y.sum() + drawn.sum()).backward()
        yield leaves, y, drawn, z, [(v.is_leaf, v.requires_grad, v.grad) for v in leaves]


@case(CASES, refused="a tensor is copied by copy.deepcopy")
def a_tensor_is_copied(compile):
    state = {"t": grid()}

    def f(x):
        new = copy.deepcopy(state)
        return new["t"] + x, new

    f = compile(f)
    for i in range(3):
        state["t"].add_(1)
        yield f(torch.ones(3) * i), state


@case(CASES)
def what_no_gradient_comes_to_is_changed_behind_autograds_back(compile):
    w, b = (nn.Parameter(torch.ones(2)) for _ in range(2))

    def by_data(x):
        b.data.mul_(0.5)
        return (w * x).sum()

    def by_detaching(x):
        b.detach().mul_(0.5)
        return (w * x).sum()

    def by_data_of_a_view(x):
        b[:1].data.mul_(0.5)
        return (w * x).sum() + b.detach().sum()

    def in_a_step(x):
        b.data.add_(x)
        loss = (w * x).sum()
        loss.backward()
        return loss.detach()

    def and_a_gradient_comes_to_it(x):
        b.data.mul_(0.5)
        return (w * b * x).sum()

    def and_it_is_used_without_gradients(x):
        b.data.mul_(0.5)
        with torch.no_grad():
            y = b * 2
        return (w * x).sum() + y

    def without_gradients(x):
        with torch.no_grad():
            b.mul_(0.5)
        return (w * x).sum()

    def beside_what_is_detached(x):
        with torch.no_grad():
            b.mul_(0.5)
        loss = (w * x).sum()
        return loss + loss.detach()

    def by_a_list_beside_what_is_detached(x):
        loss = (w * x).sum()
        with torch.no_grad():
            torch._foreach_add_([b, b[:1]], 0.5)
        return loss + loss.detach() + w.data.sum()

    ways = by_data, by_detaching, by_data_of_a_view, in_a_step, without_gradients
    ways += beside_what_is_detached, by_a_list_beside_what_is_detached
    for f in (*ways, and_a_gradient_comes_to_it, and_it_is_used_without_gradients):
        w.grad = b.grad = None
        c = compile(f)
        for _ in range(3):
            y = c(torch.ones(2))
            if y.requires_grad:
                y.sum().backward()
            yield f.__name__, y, w, b, w.grad, b.grad


def test_only_what_changes_behind_autograds_back_is_detached_for_a_compiler():
    parameters = [nn.Parameter(torch.ones(2)) for _ in range(3)]

    def f(x, loss):
        with torch.no_grad():
            torch._foreach_add_(parameters, [x] * 3)
        return loss.detach() * 2

    def by_data(x, loss):
        for p in parameters:
            p.data.add_(x)
        return loss.detach() * 2

    for f, n in ((f, 0), (by_data, 3)):
        c = magpy.compile(f, backend="aot_eager")
        for _ in range(2):
            c(torch.ones(2), torch.ones(2, requires_grad=True).sum())
        segments = c._magpy_entries[0].tag.segments
        assert sum(len(s.detached) for s in segments) == n and magpy.stats(c).hits == 1
    assert torch.equal(parameters[0], torch.full((2,), 5.0))


@case(CASES, refused="a function of the program's shows what is warned of")
def a_warning_comes_once_whatever_compiles(compile):
    seen = []

    def f(x):
        warnings.warn("once", stacklevel=1)
        return x + 1

    f, g = compile(f), compile(lambda x: x * 2)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = lambda message, category, *rest: (
            seen.append(str(message)) if category is not magpy.MagpyWarning else None
        )
        for i in range(4):
            f(grid())
            g(torch.ones(i + 1))
    yield seen


test_compilers = check_all(CASES)


def test_a_change_of_the_filters_that_a_backend_leaves_behind_counts(monkeypatch):
    # As outside of pytest, which records warnings.
    monkeypatch.setattr(warnings, "showwarning", runner._SHOW[0])
    monkeypatch.setattr(warnings, "_showwarnmsg_impl", runner._SHOW[1])

    def backend(graph, inputs):
        warnings.simplefilter("always", ResourceWarning)
        return graph.forward

    c = magpy.compile(lambda x: x + 1, backend=backend)
    with warnings.catch_warnings():
        warnings.resetwarnings()
        registry = {}

        def told():
            with warnings.catch_warnings(record=True) as found:
                warnings.warn_explicit("again", ResourceWarning, "here", 1, registry=registry)
            return len(found)

        warnings.simplefilter("default", ResourceWarning)
        c(torch.ones(2))
        assert any(f[0] == "always" and f[2] is ResourceWarning for f in warnings.filters)
        assert told() == 1
        assert told() == 1


def test_a_compiler_stops_in_inference_mode():
    def f(t):
        return t * 2

    def backend(graph, inputs):
        torch.autograd.grad_mode._enter_inference_mode(True)
        raise RuntimeError("in the midst of it")

    c = magpy.compile(f, backend=backend)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            assert_same(c(torch.ones(2)), f(torch.ones(2)))
            assert not torch.is_inference_mode_enabled()
            assert torch._C._is_multithreading_enabled()
            torch.get_rng_state()
    assert "in the midst of it" in magpy.stats(c).reasons[0]


def test_a_call_beside_a_compiler_on_another_thread_runs_eagerly():
    entered, leave = threading.Event(), threading.Event()

    def backend(graph, inputs):
        entered.set()
        assert leave.wait(60)
        return graph.forward

    first = magpy.compile(lambda x: x + 1, backend=backend)
    second = magpy.compile(lambda x: x + 2, backend="eager", fullgraph=True)
    thread = threading.Thread(target=first, args=(torch.ones(2),))
    thread.start()
    assert entered.wait(60)
    for _ in range(2 * magpy.config.max_refusals):
        assert torch.equal(second(torch.ones(2)), torch.full((2,), 3.0))
    assert magpy.stats(second).captures == 0
    assert "another thread" in magpy.stats(second).reasons[0]
    leave.set()
    thread.join()
    for _ in range(2):
        second(torch.ones(2))
    assert (magpy.stats(second).captures, magpy.stats(second).hits) == (1, 1)


def test_compilers_run_one_after_the_other():
    inside, overlapped = [], []

    def backend(graph, inputs):
        inside.append(1)
        overlapped.append(len(inside) > 1)
        threading.Event().wait(0.05)
        inside.pop()
        return graph.forward

    functions = [magpy.compile(lambda x, k=k: x + k, backend=backend) for k in range(4)]
    threads = [threading.Thread(target=f, args=(torch.ones(2),)) for f in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert overlapped
    assert not any(overlapped)


@pytest.mark.slow
def test_inductor_draws_the_random_numbers_of_eager():
    net = nn.Sequential(nn.Linear(4, 64), nn.Dropout(0.5)).train()

    def f(x):
        y = net(x) + torch.randn(x.shape[0], 64) * torch.rand_like(x)[:, :1]
        return y[:, torch.randperm(64)[:8]].sum()

    c, x = magpy.compile(f), torch.ones(3, 4)
    for seed in range(3):
        left = []
        for call in (f, c):
            net.zero_grad()
            torch.manual_seed(seed)
            call(x).backward()
            left.append((call(x).detach(), net[0].weight.grad, torch.get_rng_state()))
        torch.testing.assert_close(*left)
    assert magpy.stats(c).hits == 5


@pytest.mark.slow
def test_results_have_memory_of_their_own():
    def f(x):
        return x * torch.ones_like(x), x + 1, 1 + x, x.view(2, 2), (x * 2).view(2, 2)

    c, x = magpy.compile(f), torch.arange(4.0)
    for _ in range(3):
        results = c(x)
        for got, want in zip(results, f(x), strict=True):
            assert torch.equal(got, want)
        results[0].add_(1)
        results[1].add_(1)
        assert torch.equal(x, torch.arange(4.0))
        assert torch.equal(results[2], x + 1)
        assert results[3].data_ptr() == x.data_ptr()
    assert magpy.stats(c).hits == 2


def test_a_backend_that_gives_one_tensor_for_two():
    def backend(graph, inputs):
        def run(x):
            found = graph(x)
            return found[0], found[0], x

        return run

    c, x = magpy.compile(lambda x: (x + 1, x + 1, x * 1), backend=backend), torch.arange(4.0)
    for _ in range(4):
        a, b, same = c(x)
        a.add_(1)
        same.add_(1)
        assert torch.equal(b, torch.arange(4.0) + 1)
        assert torch.equal(x, torch.arange(4.0))


def test_a_tensor_that_is_written_twice_at_once():
    """`clip_grad_norm_` does so where two parameters have one gradient."""

    def f(a, b):
        torch._foreach_mul_([a, b, a], 2.0)
        torch._foreach_add_([a[:2], a[1:]], 1.0)
        return a + b

    for backend in ("aot_eager", "inductor"):
        c = magpy.compile(f, backend=backend)
        for i in range(3):
            one, two = ([torch.full((3,), float(i)), torch.ones(3)] for _ in range(2))
            assert c(*one).tolist() == f(*two).tolist()
            assert [t.tolist() for t in one] == [t.tolist() for t in two]
        assert magpy.stats(c).hits == 2


@pytest.mark.parametrize(
    "f",
    [
        lambda x, w: x.mul_(w),
        lambda x, w: x.mul_(w) * 1,
        lambda x, w: x[1:].mul_(w[1:]),
        lambda x, w: x.div_(w),
        lambda x, w: torch.mul(x, x, out=None) + x.pow_(w),
    ],
)
def test_an_argument_that_is_changed_can_be_differentiated(f):
    c = magpy.compile(f, backend="aot_eager")
    for i in range(4):
        grads = []
        for g in (f, c):
            w = torch.full((3,), 2.0, requires_grad=True)
            x = torch.arange(1.0, 4.0) + i
            g(x, w).sum().backward()
            grads.append((w.grad, x.detach()))
        assert_same(grads[1], grads[0])
    assert magpy.stats(c).hits == 3
