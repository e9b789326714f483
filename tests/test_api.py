"""The public surface, and what happens with bad input."""

import contextlib
import copy
import dataclasses
import functools
import inspect
import logging
import pickle
import sys
import warnings

import numpy as np
import pytest
import torch
from torch import nn

import magpy
from magpy import api
from magpy.errors import OptionError
from magpy.runtime import compiled
from magpy.runtime.repeated_misses import RepeatedMisses
from tests.comparison import assert_same

X = torch.arange(6.0).reshape(2, 3)
compile_eager = functools.partial(magpy.compile, backend="eager")


class Net(nn.Module):
    """At module level, so that it can be pickled."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4)
        self.scale = 2.0

    def forward(self, x):
        return torch.relu(self.norm(self.a(x))) * self.scale

    def twice(self, x):
        return self.forward(x) * 2


def double(x, k=2):
    """Doubles."""
    return x * k


# ---------------------------------------------------------------- what can be compiled


def test_compile_function_hits_on_the_second_call():
    c = compile_eager(double)
    assert_same(c(X), X * 2)
    assert_same(c(X + 1), (X + 1) * 2)
    stats = magpy.stats(c)
    assert (stats.captures, stats.hits, stats.eager_calls) == (1, 1, 0)
    assert stats.entries == 1
    assert stats.segments == [1]


def test_numbers_that_are_known_ahead_do_not_cut_what_changes_tensors():
    def scale(a, b):
        low = min(a.mean().item(), b.mean().item())
        a /= 1 + low
        b /= 1 + low
        return a + b

    c = compile_eager(scale)
    for k in (1.0, 2.0, 3.0):
        assert_same(c(X * k, X + k), scale(X * k, X + k))
    assert magpy.stats(c).segments == [1]


def test_compile_as_decorator_without_and_with_options():
    @magpy.compile
    def default(x):
        return x + 1

    @magpy.compile(backend="eager", fullgraph=True)
    def f(x):
        """Adds one."""
        return x + 1

    assert magpy.stats(default).captures == 0
    assert f.__name__ == "f"
    assert f.__doc__ == "Adds one."
    assert_same(f(X), X + 1)
    assert magpy.stats(f).captures == 1


def test_compiled_function_keeps_name_signature_and_defaults():
    c = compile_eager(double)
    assert c.__name__ == "double"
    assert c.__doc__ == "Doubles."
    assert c.__module__ == double.__module__
    assert str(inspect.signature(c)) == "(x, k=2)"
    assert callable(c)
    assert_same(c(X, k=3), X * 3)
    assert_same(c(x=X), X * 2)


def test_compile_bound_method_and_decorated_method():
    class A:
        k = 3.0

        def m(self, x):
            return x * self.k

        @magpy.compile(backend="eager")
        def n(self, x):
            return x + self.k

    a = A()
    c = compile_eager(a.m)
    for _ in range(2):
        assert_same(c(X), X * 3)
        assert_same(a.n(X), X + 3)
    a.k = 4.0
    assert_same(c(X), X * 4)
    assert_same(a.n(X), X + 4)
    assert_same(A().n(X), X + 3)


def test_compile_partial_lambda_and_callable_object():
    class Callable:
        def __call__(self, x):
            return x - 1

    for f, want in (
        (functools.partial(double, k=5), X * 5),
        (lambda x: x * 7, X * 7),
        (Callable(), X - 1),
    ):
        c = compile_eager(f)
        for _ in range(2):
            assert_same(c(X), want)


def test_compile_twice_compiles_once():
    c = compile_eager(double)
    d = compile_eager(c)
    assert_same(d(X), X * 2)
    assert_same(d(X), X * 2)
    assert magpy.stats(d).captures + magpy.stats(c).captures in (1, 2)
    assert magpy.stats(c).captures == 1
    model = compile_eager(Net().eval())
    again = compile_eager(model)
    again(X)
    again(X)
    assert magpy.stats(again).captures == 1


# ---------------------------------------------------------------- compiled modules


def pair():
    torch.manual_seed(0)
    net = Net().eval()
    return copy.deepcopy(net), compile_eager(net)


def test_compiled_module_keeps_class_attributes_and_state_dict_keys():
    net, c = pair()
    assert isinstance(c, Net)
    assert isinstance(c, nn.Module)
    assert list(c.state_dict()) == list(net.state_dict())
    assert [n for n, _ in c.named_parameters()] == [n for n, _ in net.named_parameters()]
    assert [n for n, _ in c.named_modules()] == [n for n, _ in net.named_modules()]
    assert c.scale == 2.0
    c.scale = 5.0
    net.scale = 5.0
    assert_same(c(X), net(X))
    assert_same(c.twice(X), net.twice(X))
    assert repr(c) == repr(net)


def test_compiled_module_is_called_as_a_module():
    net, c = pair()
    assert str(inspect.signature(c)) == str(inspect.signature(net))
    assert list(inspect.signature(type(c).__call__).parameters) == ["self", "args", "kwargs"]
    assert callable(c) and callable(c.__call__)
    for name in ("__name__", "__doc__", "__module__"):
        assert isinstance(getattr(c.__call__, name), str)
    assert c.__call__.__self__ is c
    for call in (c.__call__, functools.partial(type(c).__call__, c), lambda x: [*map(c, [x])][0]):
        for _ in range(2):
            assert_same(call(X), net(X))
    with pytest.raises(TypeError, match="positional argument"):
        c(X, X, X, X)
    with pytest.raises(TypeError, match="compiled module"):
        type(c).__call__()
    with pytest.raises(AttributeError):
        type(c).__call__(net, X)


def test_compiled_module_call_makes_no_frame():
    _, c = pair()
    c(X)
    frames = []
    sys.setprofile(lambda frame, event, _: frames.append((event, frame.f_code.co_name)))
    try:
        c(X)
    finally:
        sys.setprofile(None)
    assert "mock" == next(name for event, name in frames if event == "call")


def test_call_of_a_module_class_is_used_and_can_be_overridden():
    class Loud(Net):
        def __call__(self, x):
            return super().__call__(x) + 1

    torch.manual_seed(0)
    net = Loud().eval()
    c = compile_eager(net)

    class Louder(type(c)):
        def __call__(self, x):
            return super().__call__(x) * 2

    louder = object.__new__(Louder)
    for name in ("__magpy_callable__", "__magpy_original__"):
        object.__setattr__(louder, name, object.__getattribute__(c, name))
    for _ in range(2):
        assert_same(c(X), net(X))
        assert_same(louder(X), net(X) * 2)


def test_compiled_module_train_eval_to_and_half_state():
    net, c = pair()
    for change in (
        lambda m: m.train(),
        lambda m: m.eval(),
        lambda m: m.requires_grad_(False),
        lambda m: m.double(),
    ):
        change(net)
        change(c)
        x = X.double() if net.a.weight.dtype is torch.double else X
        for _ in range(2):
            assert_same(c(x), net(x))
        assert_same(dict(c.state_dict()), dict(net.state_dict()))
    assert c.training is net.training


def test_compiled_module_loads_a_plain_state_dict():
    _, c = pair()
    c(X)
    torch.manual_seed(5)
    other = Net().eval()
    c.load_state_dict(other.state_dict())
    assert_same(c(X), other(X))


def test_compiled_module_hooks_run_as_in_eager():
    net, c = pair()
    seen = {id(net): [], id(c): []}
    for m in (net, c):
        log = seen[id(m)]
        m.register_forward_pre_hook(lambda mod, args, log=log: log.append("pre"))
        m.a.register_forward_hook(lambda mod, args, out, log=log: out + 1)
    for _ in range(3):
        assert_same(c(X), net(X))
    assert seen[id(net)] == seen[id(c)] == ["pre"] * 3
    handles = [m.register_forward_hook(lambda mod, args, out: out * 10) for m in (net, c)]
    assert_same(c(X), net(X))
    for h in handles:
        h.remove()
    assert_same(c(X), net(X))


@pytest.mark.parametrize("warm", [False, True], ids=["before-capture", "after-capture"])
def test_compiled_module_pickle_and_deepcopy(warm):
    net, c = pair()
    if warm:
        c(X)
    for clone in (copy.deepcopy(c), pickle.loads(pickle.dumps(c))):
        assert isinstance(clone, Net)
        assert list(clone.state_dict()) == list(net.state_dict())
        for _ in range(2):
            assert_same(clone(X), net(X))
        with torch.no_grad():
            clone.a.weight.zero_()
        assert not torch.equal(clone(X), net(X))
        assert_same(c(X), net(X))


@pytest.mark.parametrize("options", [{"freezing": 3}, {"max_autotune": "yes"}, {"no such": 1}])
def test_an_option_of_inductor_has_a_name_and_a_type(options):
    with pytest.raises(magpy.OptionError, match="option"):
        magpy.compile(double, options=options)


def test_compiled_function_pickles_by_name_or_deepcopies():
    c = compile_eager(double)
    assert_same(copy.deepcopy(c)(X), X * 2)


def test_compiled_module_inside_another_module():
    net, c = pair()
    plain, outer = nn.Sequential(net, nn.Tanh()), nn.Sequential(c, nn.Tanh())
    assert list(outer.state_dict()) == list(plain.state_dict())
    assert_same(outer(X), plain(X))
    whole = compile_eager(outer)
    for _ in range(2):
        assert_same(whole(X), plain(X))


def test_compiled_module_trains_with_an_optimizer():
    net, c = pair()
    net.train()
    c.train()
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (net, c)]
    for _ in range(3):
        for m, opt in zip((net, c), optimizers, strict=True):
            opt.zero_grad()
            m(X).square().mean().backward()
            opt.step()
        assert_same(dict(c.state_dict()), dict(net.state_dict()))


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize("value", [3, "f", [double], torch.ones(2)])
def test_compile_what_is_not_callable_says_so(value):
    with pytest.raises(TypeError, match="function, method or module"):
        magpy.compile(value)


def test_compile_unknown_backend_lists_the_known_ones():
    with pytest.raises(ValueError, match="inductr") as info:
        magpy.compile(double, backend="inductr")
    for known in ("inductor", "eager", "aot_eager"):
        assert known in str(info.value)


@pytest.mark.parametrize(
    "options",
    [
        {"backend": 7},
        {"fullgraph": "yes"},
        {"dynamic": "maybe"},
        {"mode": 3},
        {"options": [1]},
        {"mode": "no-such-mode"},
        {"options": {"no_such_option": 1}},
    ],
    ids=str,
)
def test_compile_option_of_the_wrong_kind_names_the_option(options):
    with pytest.raises((TypeError, ValueError, RuntimeError)) as info:
        magpy.compile(double, **options)
    (name,) = options
    assert name in str(info.value)


def test_compile_unknown_option_is_a_type_error():
    with pytest.raises(TypeError, match="full_graph"):
        magpy.compile(double, full_graph=True)


def plus_one(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def test_compile_class_instead_of_instance():
    """A class is callable; either it is refused with a hint, or calls make plain instances."""
    try:
        c = compile_eager(Net)
    except TypeError as error:
        assert "instance" in str(error)
        return
    assert isinstance(c(), Net)


def test_a_scripted_module_or_function_comes_back_with_one_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(Net().eval())
        function = torch.jit.script(plus_one)
    api._warn_once_of_scripts.cache_clear()
    with pytest.warns(magpy.MagpyWarning, match="scripted module or function") as told:
        assert compile_eager(scripted) is scripted
        assert compile_eager(function) is function
    assert len(told) == 1
    assert told[0].filename == __file__


def test_wrong_arguments_give_eagers_own_error():
    net, c = pair()
    c(X)
    for args in ((), (X, X), (torch.ones(2, 5),), ("text",), (None,)):
        with pytest.raises(Exception) as want:
            net(*args)
        for _ in range(2):
            with pytest.raises(type(want.value)) as got:
                c(*args)
            assert str(got.value) == str(want.value)
    assert_same(c(X), net(X))


def test_exception_of_the_program_comes_with_its_own_traceback():
    def fails(x):
        raise KeyError("mine")

    c = compile_eager(fails)
    for _ in range(3):
        with pytest.raises(KeyError, match="mine") as info:
            c(X)
        assert any(entry.name == "fails" for entry in info.traceback)


# ---------------------------------------------------------------- backends


def test_custom_backend_gets_a_graph_module_and_inputs():
    calls = []

    def backend(gm, example_inputs):
        calls.append((gm, example_inputs))
        assert isinstance(gm, torch.fx.GraphModule)
        return gm.forward

    c = magpy.compile(lambda x: (x + 1).sum(), backend=backend)
    for _ in range(3):
        assert_same(c(X), (X + 1).sum())
    assert len(calls) == 1
    assert all(isinstance(t, torch.Tensor) for t in calls[0][1])


def test_python_runs_a_graph_for_which_the_backend_fails():
    def fails_for_three(gm, example_inputs):
        if example_inputs[0].numel() == 3:
            raise RuntimeError("no threes")
        return gm.forward

    def f(x):
        y = x[: int(x[0])] * 2  # two graphs: the size follows from data
        return y.sum() + len(y)

    for first in (double, f):
        c = magpy.compile(first, backend=fails_for_three, dynamic=False)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for n in (3, 2, 3, 2, 4, 3):
                x = torch.full((n,), 2.0)
                assert_same(c(x), first(x))
        assert len(caught) == 1, [str(w.message) for w in caught]
        assert "no threes" in str(caught[0].message)
        s = magpy.stats(c)
        assert (s.captures, s.entries, s.eager_calls, s.uncompiled) == (3, 3, 0, 1)


def test_a_backend_that_always_fails_is_not_asked_for_ever():
    asked = []

    def broken(gm, example_inputs):
        asked.append(gm)
        raise RuntimeError(f"no {len(asked)}")

    c = magpy.compile(double, backend=broken, dynamic=False)
    with pytest.warns(magpy.MagpyWarning, match="runs eagerly from now on"):
        for n in range(1, 9):
            assert_same(c(torch.ones(n)), torch.ones(n) * 2)
    assert len(asked) == magpy.config.max_refusals


def test_failing_backend_warns_once():
    def broken(gm, example_inputs):
        raise RuntimeError("no such accelerator")

    c = magpy.compile(double, backend=broken)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(4):
            assert_same(c(X), X * 2)
    assert len(caught) == 1, [str(w.message) for w in caught]
    assert "no such accelerator" in str(caught[0].message)
    assert issubclass(caught[0].category, UserWarning)


def test_failing_backend_with_fullgraph_raises_its_error():
    def broken(gm, example_inputs):
        raise RuntimeError("no such accelerator")

    c = magpy.compile(double, backend=broken, fullgraph=True)
    with pytest.raises(RuntimeError, match="no such accelerator"):
        c(X)


def test_backend_that_returns_no_callable_is_reported():
    c = magpy.compile(double, backend=lambda gm, inputs: None)
    with pytest.warns(UserWarning, match="callable"):
        assert_same(c(X), X * 2)


def test_fullgraph_refusal_names_file_line_and_remedy():
    def f(x):
        for _ in range(30):  # too much to be checked ahead of the graph
            x = torch.tanh(x + 1)
        return x * torch.from_numpy(np.sin(x.numpy()))

    c = compile_eager(f, fullgraph=True)
    with pytest.raises(magpy.CaptureError) as info:
        c(X)
    assert "test_api.py" in str(info.value)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_standard_backend_forward_and_backward(backend):
    net, _ = pair()
    twin = copy.deepcopy(net)
    c = magpy.compile(twin, backend=backend)
    for _ in range(2):
        want, got = net(X), c(X)
        assert_same(got, want, tol=1e-5)
        want.sum().backward()
        got.sum().backward()
    for (_, p), (_, q) in zip(net.named_parameters(), twin.named_parameters(), strict=True):
        assert_same(q.grad, p.grad, tol=1e-5)


# ---------------------------------------------------------------- stats, explain, reset, disable


def test_stats_of_something_not_compiled_is_a_type_error():
    with pytest.raises(TypeError, match=r"(?i)compile"):
        magpy.stats(double)


def test_stats_count_misses_and_new_entries():
    c = compile_eager(double)
    c(X)
    c(X, 3)
    c(X, 3)
    c(X)
    stats = magpy.stats(c)
    assert stats.captures == 2
    assert stats.misses == 2
    assert stats.hits == 2
    assert stats.capture_seconds > 0


def test_stats_are_a_mapping_too():
    c = compile_eager(double)
    c(X)
    c(X)
    stats = magpy.stats(c)
    assert stats["hits"] == stats.hits == 1
    assert dict(stats)["captures"] == 1
    assert set(stats.keys()) == set(stats) == {f.name for f in dataclasses.fields(stats)}
    assert "hits" in stats
    assert "hit" not in stats
    assert len(stats) == len(dict(stats))
    assert magpy.stats(c) == stats
    with pytest.raises(KeyError):
        stats["hit"]
    with pytest.raises(KeyError):
        stats["keys"]


def test_every_figure_of_stats_is_documented():
    documented = inspect.getdoc(compiled.Stats)
    for name in magpy.stats(compile_eager(double)):
        assert f"\n    {name}: " in documented


def test_reset_forgets_entries_and_counts():
    c = compile_eager(double)
    c(X)
    magpy.reset()
    assert magpy.stats(c).entries == 0
    assert magpy.stats(c).captures == 0
    assert_same(c(X), X * 2)
    assert magpy.stats(c).captures == 1


def test_entry_limit_warns_once_and_runs_eagerly(monkeypatch):
    monkeypatch.setattr(magpy.config, "max_entries", 2)
    c = compile_eager(double, dynamic=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for k in ("a", "b", "c", "d", "e"):
            f = {"a": 1, "b": 2.5, "c": True, "d": None, "e": 1j}[k]
            if f is None:
                with pytest.raises(TypeError):
                    c(X, f)
            else:
                assert_same(c(X, f), X * f)
    assert magpy.stats(c).entries <= 2
    assert len([w for w in caught if issubclass(w.category, UserWarning)]) <= 1


def count_watched(monkeypatch):
    watched = []
    run = compiled.session.run

    def counted(*args):
        watched.append(1)
        return run(*args)

    monkeypatch.setattr(compiled.session, "run", counted)
    return watched


def test_misses_that_are_always_refused_are_not_watched_for_ever(monkeypatch):
    monkeypatch.setattr(magpy.config, "max_captures", 6)
    watched = count_watched(monkeypatch)

    def f(x, path):
        return x * 2 if path is None else x * len(open(path).read())

    c = compile_eager(f)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(12):
            assert_same(c(X, None), X * 2)
            assert_same(c(X, __file__), f(X, __file__))
    assert len(watched) == 6
    assert magpy.stats(c).hits == 11, "the entry goes on serving"
    assert len([w for w in caught if issubclass(w.category, UserWarning)]) == 1


def test_limits_are_explained_once(monkeypatch):
    monkeypatch.setattr(magpy.config, "max_entries", 1)
    c = compile_eager(lambda x, k: x * k, dynamic=False)
    asked = []
    why = RepeatedMisses.why_missed
    monkeypatch.setattr(RepeatedMisses, "why_missed", lambda *args: asked.append(1) or why(*args))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for k in (1, "a", "b", "c"):
            with contextlib.suppress(TypeError):
                c(X, k)
    assert len(asked) == 1


def test_a_call_of_very_many_operations_runs_eagerly(monkeypatch):
    monkeypatch.setattr(magpy.config, "max_operations", 10)

    def f(x, n):
        for _ in range(n):
            x = x + 1
        return x

    c = compile_eager(f)
    assert_same(c(X, 9), f(X, 9))
    assert_same(c(X, 11), f(X, 11))
    assert magpy.stats(c).captures == 1
    assert "more than 10 tensor operations" in magpy.stats(c).reasons[0]
    assert "test_api.py" in magpy.stats(c).reasons[0]


def test_explain_prints_graph_and_draws(tmp_path):
    net, _ = pair()
    explanation = magpy.explain(net, X)
    text = str(explanation)
    assert "relu" in text
    assert "self.scale is 2.0" in text
    assert "x: class, dtype, device, shape" in text
    path = tmp_path / "graph.svg"
    explanation.draw(str(path))
    assert path.stat().st_size > 100


def test_explain_says_why_not():
    def f(x):
        return x * len(open(__file__).read())

    assert "test_api.py" in str(magpy.explain(f, X))


def test_explain_says_what_of_a_compiled_callable_is_left_to_python(monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", True)

    def f(x):
        h = (x * 2).relu()
        n = len(open(__file__).read())
        return h.softmax(-1) + n

    compiled = magpy.compile(f, backend="eager")
    for _ in range(8):
        compiled(X)
    line = f.__code__.co_firstlineno + 2
    parts = magpy.stats(compiled).regions
    assert parts > 1
    assert str(magpy.explain(compiled, X)) == (
        f"runs in part: {parts} regions; left to Python: {__file__}:{line} (f), open is called"
    )
    assert str(magpy.explain(f, X)).startswith("runs eagerly: ")


def test_disable_as_decorator_runs_the_function_eagerly():
    calls = []

    @magpy.disable
    def noted(x):
        calls.append(1)
        return x * 2

    assert_same(noted(X), X * 2)

    def f(x):
        return noted(x + 1) - 1

    c = compile_eager(f)
    for _ in range(3):
        assert_same(c(X), (X + 1) * 2 - 1)
    assert len(calls) == 4


def test_pure_registration_keeps_a_python_function_out_of_the_replay():
    calls = []

    def table(n):
        calls.append(n)
        return float(n) * 2

    magpy.pure(table)
    c = compile_eager(lambda x: x * table(3))
    for _ in range(3):
        assert_same(c(X), X * 6)
    assert len(calls) in (1, 3)


def test_effect_registration_is_redone_on_every_call():
    log = []

    def report(value):
        log.append(value)

    magpy.effect(report)

    def f(x):
        report("before")
        y = x * 2
        report("after")
        return y

    c = compile_eager(f)
    for _ in range(3):
        assert_same(c(X), X * 2)
    assert log == ["before", "after"] * 3


def test_allow_in_graph_becomes_one_operation():
    def op(x):
        return x.sin() + x.cos()

    magpy.allow_in_graph(op)
    seen = []

    def backend(gm, inputs):
        seen.extend(n.target for n in gm.graph.nodes if n.op == "call_function")
        return gm.forward

    c = magpy.compile(lambda x: op(x) * 2, backend=backend)
    for _ in range(2):
        assert_same(c(X), (X.sin() + X.cos()) * 2)
    assert op in seen


def test_public_names_are_those_documented():
    documented = {
        "CaptureError",
        "allow_in_graph",
        "compile",
        "config",
        "disable",
        "effect",
        "explain",
        "pure",
        "reset",
        "stats",
    }
    assert documented <= set(magpy.__all__)
    for name in magpy.__all__:
        assert hasattr(magpy, name)
    for name in documented - {"config"}:
        assert getattr(magpy, name).__doc__, name


def test_logging_topics_print_guards_and_mock(monkeypatch, caplog):
    monkeypatch.setattr(magpy.config, "logs", frozenset({"guards", "mock", "graph"}))
    with caplog.at_level(logging.DEBUG, logger="magpy"):
        compile_eager(double)(X)
    assert "def " in caplog.text


def test_captures_and_misses_are_logged_as_information(monkeypatch, caplog):
    monkeypatch.setattr(magpy.config, "logs", frozenset({"capture", "miss"}))
    c = compile_eager(double)
    c(X, 2)
    c(X, 3.5)
    found = [r for r in caplog.records if r.name == "magpy"]
    assert [r.levelname for r in found] == ["INFO"] * 3
    assert "captured 1 operation" in found[0].getMessage()
    assert "no entry holds" in found[1].getMessage()


def test_a_topic_that_is_not_chosen_is_not_logged(monkeypatch, caplog):
    monkeypatch.setattr(magpy.config, "logs", frozenset({"miss"}))
    with caplog.at_level(logging.DEBUG, logger="magpy"):
        compile_eager(double)(X)
    assert [r for r in caplog.records if r.name == "magpy"] == []


def test_an_unknown_log_topic_is_refused_with_the_known_ones():
    assert magpy.config.log_topics(" guards, miss,") == {"guards", "miss"}
    with pytest.raises(OptionError) as found:
        magpy.config.log_topics("guards,misses")
    assert "'misses'" in str(found.value)
    assert all(topic in str(found.value) for topic in magpy.config.LOG_TOPICS)


def test_capture_leaves_random_state_and_hooks_as_eager():
    import sys

    c = compile_eager(lambda x: torch.rand(2) + x.sum())
    torch.manual_seed(3)
    want = torch.rand(2) + X.sum()
    state = torch.get_rng_state()
    for _ in range(2):
        torch.manual_seed(3)
        assert_same(c(X), want)
        assert torch.equal(torch.get_rng_state(), state)
    assert sys.gettrace() is None
    assert sys.getprofile() is None


def test_a_warning_names_the_line_of_the_program_that_made_the_call():
    @magpy.disable
    def apart(x):
        return x

    compiled = magpy.compile(lambda x: apart(x), backend="eager")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(3):
            compiled(torch.ones(2))
    assert [w.filename for w in told if w.category is magpy.MagpyWarning] == [__file__]


@pytest.mark.parametrize("wrong", [5, None, (), (1, 2)])
def test_a_backend_whose_graphs_give_something_else_is_told_of(wrong):
    def backend(graph, inputs):
        return lambda *given: wrong

    c = magpy.compile(lambda x: x * 2, backend=backend)
    with pytest.warns(magpy.MagpyWarning, match="what it compiled gave"):
        for _ in range(5):
            assert_same(c(X), X * 2)
    strict = magpy.compile(lambda x: x * 2, backend=backend, fullgraph=True)
    strict(X)
    with pytest.raises(Exception, match="what it compiled gave"):
        strict(X)


class Multiplies:
    factor = 3

    @magpy.compile(backend="eager")
    @classmethod
    def above(cls, x):
        return x * cls.factor

    @classmethod
    @magpy.compile(backend="eager")
    def below(cls, x):
        return x * cls.factor

    @magpy.compile(backend="eager")
    @staticmethod
    def static(x):
        return x * 2


class MultipliesMore(Multiplies):
    factor = 5


def test_class_methods_and_static_methods_are_compiled_on_either_side():
    for _ in range(3):
        for cls in (Multiplies, MultipliesMore):
            for way in (cls.above, cls.below, cls().above, cls().below):
                assert_same(way(X), X * cls.factor)
            assert_same(cls.static(X), X * 2)
            assert_same(cls().static(X), X * 2)


def test_a_call_of_very_many_values_of_data_is_let_run(monkeypatch):
    monkeypatch.setattr(magpy.config, "max_operations", 50)

    def f(t):
        n, found = t.item(), 0
        for i in range(200):
            found += n == i
        return found

    c = magpy.compile(f, backend="eager")
    for v in (3.0, 4.0, 1000.0):
        assert c(torch.tensor(v)) == f(torch.tensor(v))
    assert magpy.stats(c).captures == 0
    assert "more than 50 values that follow from data" in magpy.stats(c).reasons[0]
