"""`_interp.Compiled`: which entry answers a call, and how it passes for the wrapped function.

Owns: dispatch without torch.  Does not own: guards (`test_guards.py`), what a miss does.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import gc
import inspect
import pickle
import sys
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from magpy import _interp

MISS = _interp.MISS


def make(wrapped: Callable[..., Any] = lambda *a, **k: ("wrapped", a, k)) -> _interp.Compiled:
    return _interp.Compiled(wrapped, lambda c, a, k: ("miss", a, k))


def entry(value: Any, mock: Callable[..., Any], *, tag: object = None) -> _interp.Entry:
    """An entry for one positional argument that equals `value`."""
    return _interp.Entry(_interp.Guard(1, (), 1, [("leaf", 0, value)], {}), mock, None, tag)


def counters(c: _interp.Compiled) -> tuple[int, int, int]:
    return c._magpy_hits, c._magpy_misses, c._magpy_calls


def test_call_without_entries_misses_with_tuple_and_dict() -> None:
    c = make()
    assert c(1, 2, k=3) == ("miss", (1, 2), {"k": 3})
    assert c() == ("miss", (), {})
    assert counters(c) == (0, 2, 2)


def test_on_miss_gets_the_compiled_object() -> None:
    c = _interp.Compiled(len, lambda c, a, k: c)
    assert c(1) is c


def test_entry_whose_guard_holds_answers() -> None:
    c = make()
    c._magpy_entries = [entry(1, lambda x: "one"), entry(2, lambda x: "two")]
    assert [c(1), c(2), c(3)] == ["one", "two", ("miss", (3,), {})]
    assert counters(c) == (2, 1, 3)


def test_keyword_arguments_reach_the_mock() -> None:
    c = make()
    g = _interp.Guard(1, ("k",), 2, [("leaf", 1, 5)], {})
    c._magpy_entries = [_interp.Entry(g, lambda x, *, k: (x, k), None)]
    assert c(1, k=5) == (1, 5)
    assert c(1, k=6) == ("miss", (1,), {"k": 6})
    assert c(1, 5) == ("miss", (1, 5), {})


def test_hit_entry_moves_to_front_and_others_keep_order() -> None:
    c = make()
    entries = [entry(i, lambda x: x) for i in range(4)]
    c._magpy_entries = entries
    c(2)
    assert c._magpy_entries == [entries[2], entries[0], entries[1], entries[3]]
    assert [e.hits for e in entries] == [0, 0, 1, 0]


def test_mock_returning_miss_goes_on_to_the_next_entry() -> None:
    c = make()
    c._magpy_entries = [entry(1, lambda x: MISS), entry(1, lambda x: "second")]
    assert c(1) == "second"
    c._magpy_entries = [entry(1, lambda x: MISS)]
    assert c(1) == ("miss", (1,), {})
    assert counters(c) == (1, 1, 2)


def test_on_miss_may_run_an_entry_itself() -> None:
    def on_miss(c: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return c._magpy_run(one, args, kwargs)

    one = _interp.Entry(_interp.Guard(2, ("k",), 3, [], {}), lambda a, b, k: (a, b, k))
    c: Any = _interp.Compiled(lambda *a, **k: "wrapped", on_miss)
    assert c(1, 2, k=3) == (1, 2, 3)
    assert (counters(c), one.hits) == ((1, 0, 1), 1)
    assert c(1) == "wrapped"  # MISS: the entry does not fit
    assert (counters(c), one.hits) == ((1, 1, 2), 1)


def test_mock_exception_propagates() -> None:
    def fails(x: int) -> None:
        raise KeyError(x)

    c = make()
    c._magpy_entries = [entry(1, fails), entry(1, lambda x: "second")]
    with pytest.raises(KeyError):
        c(1)
    assert counters(c) == (1, 0, 1)


@pytest.mark.parametrize("n", [0, 1, 8, 33, 70])
def test_a_mock_is_given_registers(n: int) -> None:
    names = ("p", "q")
    checks = [("item", n + 2, n, 1), ("dict_get", n + 3, n + 1, "key")]
    g = _interp.Guard(n, names, n + 4, checks, {})
    reads = (n + 3, *range(n), n + 2)
    c = make()
    c._magpy_entries = [_interp.Entry(g, lambda *a: a, reads)]
    values = tuple(range(n))
    given = {"p": (5, 6), "q": {"key": 7}}
    expected = (7, *values, 6)
    assert c(*values, **given) == expected  # no room before the arguments
    assert functools.partial(c, *values)(**given) == expected
    bound = types.MethodType(c, 0)
    assert n == 0 or bound(*values[1:], **given) == expected  # room before them
    assert c._magpy_entries[0](*values, **given) == expected
    assert c._magpy_entries[0](*values, p=(5,), q={"key": 7}) is MISS


def test_registers_are_released_after_the_call() -> None:
    g = _interp.Guard(1, (), 2, [("inst_dict", 1, 0)], {})  # which makes a reference

    class Holder:
        pass

    def fails(d: Any) -> Any:
        raise ValueError

    for mock in (len, fails):
        e = _interp.Entry(g, mock, (1,))
        holder = Holder()
        held = vars(holder)
        before = sys.getrefcount(held)
        with contextlib.suppress(ValueError):
            e(holder)
        assert sys.getrefcount(held) == before


@pytest.mark.parametrize("reads", [(2,), (-1,), (1 << 40,), (1, 3)])
def test_registers_that_nothing_fills_are_refused(reads: tuple[int, ...]) -> None:
    g = _interp.Guard(1, (), 3, [("item", 1, 0, 0)], {})
    with pytest.raises(ValueError, match="does not fill"):
        _interp.Entry(g, print, reads)
    with pytest.raises(TypeError):
        _interp.Entry(g, print, [1])  # type: ignore[arg-type]


def test_plain_calls_the_wrapped_function() -> None:
    c = make()
    c._magpy_entries = [entry(1, lambda x: "one")]
    c._magpy_plain = True
    assert c(1, k=2) == ("wrapped", (1,), {"k": 2})
    assert counters(c) == (0, 0, 1)


def test_recursion_through_itself() -> None:
    def double(x: int) -> Any:
        return 1 if x == 0 else 2 * c(x - 1)

    c = _interp.Compiled(double, lambda c, a, k: double(*a))
    c._magpy_entries = [entry(0, lambda x: 1), entry(5, double)]
    assert c(6) == 64


def test_deep_recursion_raises_recursion_error() -> None:
    c = _interp.Compiled(len, lambda c, a, k: c(*a))
    with pytest.raises(RecursionError):
        c(1)


def test_entries_may_change_while_a_mock_runs() -> None:
    c = make()

    def drops_everything(x: int) -> Any:
        c._magpy_entries.clear()
        c._magpy_entries = []
        gc.collect()
        return MISS

    c._magpy_entries = [entry(1, drops_everything), entry(1, lambda x: "second")]
    assert c(1) == ("miss", (1,), {})
    assert c._magpy_entries == []


def test_entries_may_change_while_a_guard_runs() -> None:
    c = make()

    def check(x: int) -> bool:
        c._magpy_entries = []
        return True

    g = _interp.Guard(1, (), 1, [("py", check, (0,))], {})
    c._magpy_entries = [_interp.Entry(g, lambda x: "hit", None)]
    assert c(1) == "hit"
    assert c._magpy_entries == []


def test_entries_list_is_the_live_one() -> None:
    c = make()
    c._magpy_entries.append(entry(1, lambda x: "one"))
    c._magpy_entries.append("no entry")
    assert c(1) == "one"
    assert c(2) == ("miss", (2,), {})


@pytest.mark.parametrize("entries", [3, ["x"], (1,), None])
def test_entries_refuses_other_things(entries: Any) -> None:
    with pytest.raises(TypeError):
        make()._magpy_entries = entries


def test_threads_share_one_compiled() -> None:
    c = make()
    c._magpy_entries = [entry(i, lambda x: x) for i in range(8)]
    errors: list[Any] = []

    def work() -> None:
        for i in range(2000):
            if c(i % 8) != i % 8:
                errors.append(i)
            if i % 100 == 0:
                c._magpy_entries = list(c._magpy_entries)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors
    assert c._magpy_calls == 16000


# ------------------------------------------------ passing for the function


def sample(a: int, b: int = 2, *, c: int = 3) -> int:
    """Adds."""
    return a + b + c


def test_attributes_forward_to_the_wrapped_function() -> None:
    c = make(sample)
    assert c.__name__ == "sample"
    assert c.__qualname__ == "sample"
    assert c.__doc__ == "Adds."
    assert c.__module__ == __name__
    assert c.__defaults__ == (2,)
    assert c.__code__ is sample.__code__
    assert c.__dict__ is sample.__dict__
    assert c.__wrapped__ is sample
    assert c._magpy_wrapped is sample
    with pytest.raises(AttributeError):
        _ = c.missing


def test_attribute_writes_forward_to_the_wrapped_function() -> None:
    def f(a: int, b: int = 1) -> None:
        """F."""

    c = make(f)
    c.counter = 1
    c.counter += 1
    assert f.counter == 2  # type: ignore[attr-defined]
    c.__defaults__ = (5,)
    assert f.__defaults__ == (5,)
    del c.counter
    assert not hasattr(f, "counter")
    assert not hasattr(c, "counter")


def test_common_names_are_the_functions_own() -> None:
    def f() -> None:
        c.calls += 1
        c.hits = c.misses = c.entries = c.plain = c.options = "mine"

    c = _interp.Compiled(f, lambda c, a, k: c.__wrapped__(*a, **k))
    f.calls = 0  # type: ignore[attr-defined]
    c()
    assert c.calls == 1
    assert f.hits == "mine"  # type: ignore[attr-defined]
    assert counters(c) == (0, 1, 1)


def test_signature_is_the_wrapped_ones() -> None:
    assert inspect.signature(make(sample)) == inspect.signature(sample)


def test_passes_for_a_function() -> None:
    c = make(sample)
    assert isinstance(c, types.FunctionType)
    assert inspect.isfunction(c)
    assert type(c) is _interp.Compiled
    assert isinstance(c, _interp.Compiled)
    assert callable(c)


def test_other_callables_keep_their_class_to_themselves() -> None:
    class Callable_:
        def __call__(self) -> int:
            return 1

    c = make(Callable_())
    assert not isinstance(c, Callable_)
    assert c.__class__ is _interp.Compiled


def test_coroutine_functions_are_recognized() -> None:
    async def f() -> int:
        return 1

    c = _interp.Compiled(f, lambda c, a, k: c.__wrapped__(*a, **k))
    assert inspect.iscoroutinefunction(c)
    assert asyncio.run(c()) == 1
    assert not inspect.iscoroutinefunction(make(sample))


def test_functools_wraps_copies_from_it() -> None:
    @functools.wraps(make(sample))
    def outer() -> None:
        pass

    assert outer.__name__ == "sample"
    assert outer.__doc__ == "Adds."


def test_binds_like_a_function() -> None:
    class A:
        def f(self, x: int) -> Any:
            return self, x

    c = _interp.Compiled(A.f, lambda c, a, k: c.__wrapped__(*a, **k))
    A.f = c  # type: ignore[method-assign]
    a = A()
    assert a.f(1) == (a, 1)
    assert isinstance(a.f, types.MethodType)
    assert a.f.__func__ is c
    assert A.f is c
    assert A.f(a, 2) == (a, 2)


class Unbinding:
    def __call__(self, *args: Any) -> Any:
        return args


class Binding(Unbinding):
    def __get__(self, instance: Any, owner: Any) -> Any:
        return ("bound", instance)


@pytest.mark.parametrize("wrapped", [len, Unbinding()], ids=["builtin", "instance"])
def test_wrapped_that_does_not_bind_stays_unbound(wrapped: Any) -> None:
    class A:
        f = make(wrapped)

    assert A().f(7) == ("miss", (7,), {})


def test_wrapped_that_binds_in_its_own_way_does() -> None:
    class A:
        f = make(Binding())

    a = A()
    assert a.f == ("bound", a)


def test_repr_names_the_wrapped_function() -> None:
    assert "sample" in repr(make(sample))


def test_weak_references_and_hash() -> None:
    c = make()
    ref = weakref.ref(c)
    assert {c: 1}[c] == 1
    assert ref() is c
    del c
    assert ref() is None


def test_reduce_goes_through_the_python_helper(monkeypatch: pytest.MonkeyPatch) -> None:
    helper = types.ModuleType("magpy.runtime.pickling")
    helper.reduce = lambda c: (make, (c.__wrapped__,))  # type: ignore[attr-defined]
    runtime = sys.modules.get("magpy.runtime") or types.ModuleType("magpy.runtime")
    monkeypatch.setitem(sys.modules, "magpy.runtime", runtime)
    monkeypatch.setitem(sys.modules, "magpy.runtime.pickling", helper)
    c = make(sample)
    assert pickle.loads(pickle.dumps(c)).__wrapped__ is sample
    assert copy.deepcopy(c).__wrapped__ is sample
    assert copy.copy(c) is not c


@pytest.mark.parametrize("args", [(), (3, print), (print, 3), (print,)])
def test_constructor_refuses_what_is_not_callable(args: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError):
        _interp.Compiled(*args)


def test_entry_refuses_other_guards() -> None:
    with pytest.raises(TypeError):
        _interp.Entry(3, print)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        entry(1, 3)  # type: ignore[arg-type]


def test_entry_shows_its_parts() -> None:
    e = entry(1, print, tag="t")
    assert isinstance(e.guard, _interp.Guard)
    assert (e.mock, e.tag, e.hits) == (print, "t", 0)
    e.tag = 5
    assert e.tag == 5


def test_cycle_through_guard_and_mock_is_collected() -> None:
    class Model:
        pass

    def build() -> tuple[weakref.ref[Any], weakref.ref[Any]]:
        m: Any = Model()
        c = make(lambda x: m)
        g = _interp.Guard(1, (), 1, [("is", 0, m)], {"dicts": [(m.__dict__, [("c", c, "is")])]})
        m.c = c
        c._magpy_entries = [_interp.Entry(g, lambda x: m, None, c)]
        c._magpy_options = {"self": c}
        assert c(m) is m
        return weakref.ref(m), weakref.ref(c)

    refs = build()
    gc.collect()
    assert [r() for r in refs] == [None, None]


def test_calls_leak_nothing() -> None:
    argument, value = object(), object()
    c = _interp.Compiled(lambda *a, **k: value, lambda c, a, k: value)
    g = _interp.Guard(1, (), 1, [("is", 0, argument)], {})
    c._magpy_entries = [
        _interp.Entry(g, lambda x: MISS, (0,)),
        _interp.Entry(g, lambda x: value, None),
    ]

    def run() -> None:
        for _ in range(10):
            c(argument)
            c(1, argument, k=argument)
            c(argument, k=value)
        c._magpy_plain = True
        c(argument)
        c._magpy_plain = False

    run()
    before = sys.getrefcount(argument), sys.getrefcount(value)
    for _ in range(100):
        run()
    assert (sys.getrefcount(argument), sys.getrefcount(value)) == before


def test_entries_for_other_arguments_do_not_look_at_anything_anchored() -> None:
    looked: list[int] = []

    def look(i: int) -> None:
        looked.append(i)

    def entry_of(i: int) -> _interp.Entry:
        anchors = {"redo": [(look, (i,), None, "leaf")]}
        return _interp.Entry(_interp.Guard(1, (), 1, [("leaf", 0, i)], anchors), lambda x: x)

    c = make()
    c._magpy_entries = [entry_of(i) for i in range(16)]
    assert c(15) == 15
    assert looked == [15]
    assert c(15) == 15
    assert c(3) == 3
    assert looked == [15, 15, 3]
    assert c(99) == ("miss", (99,), {})
    assert looked == [15, 15, 3]


def test_arguments_that_an_anchored_check_changes_are_checked_after_it() -> None:
    box = [1]
    guard = _interp.Guard(
        1, (), 2, [("item", 1, 0, 0), ("leaf", 1, 1)], {"redo": [(box.append, (2,), None, "leaf")]}
    )
    c = make()
    c._magpy_entries = [_interp.Entry(guard, lambda x: "held"), entry(0, lambda x: "other")]
    assert c(box) == "held"
    guard = _interp.Guard(
        1, (), 2, [("item", 1, 0, 0), ("leaf", 1, 1)], {"redo": [(box.clear, (), None, "leaf")]}
    )
    c._magpy_entries = [_interp.Entry(guard, lambda x: "held"), entry(0, lambda x: "other")]
    assert c(box) == ("miss", (box,), {})


# ------------------------------------------------ the call of compiled modules


def module_class(call: Any) -> type:
    return type("Module", (), {"__slots__": (_interp.MODULE_SLOT,), "__call__": call})


def test_module_call_calls_what_is_in_the_slot() -> None:
    call = _interp.ModuleCall()
    m = module_class(call)()
    setattr(m, _interp.MODULE_SLOT, lambda *a, **k: (a, k))
    assert m(1, 2, x=3) == m.__call__(1, 2, x=3) == call(m, 1, 2, x=3) == ((1, 2), {"x": 3})
    assert m() == ((), {})
    assert m.__call__.__func__ is call
    assert type(m).__call__ is call
    setattr(m, _interp.MODULE_SLOT, make())
    assert m(1) == ("miss", (1,), {})


def test_module_call_without_a_module() -> None:
    call = _interp.ModuleCall()
    with pytest.raises(TypeError, match="compiled module"):
        call()
    with pytest.raises(AttributeError):
        call(3)
    with pytest.raises(AttributeError):
        module_class(call)()()
    with pytest.raises(TypeError):
        _interp.ModuleCall(3)  # type: ignore[call-arg]


def test_module_call_attributes_and_cycles() -> None:
    call: Any = functools.update_wrapper(_interp.ModuleCall(), make)
    assert call.__name__ == "make"
    assert call.__wrapped__ is make
    call.me = call
    call.probe = probe = type("Probe", (), {})()
    ref = weakref.ref(probe)
    del call, probe
    gc.collect()
    assert ref() is None
