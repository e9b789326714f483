"""Python of the program that hears of prints, logs and warnings, put in place after the capture.

Owns: programs in which a stream, a handler, a filter, a formatter or a hook of `warnings` that an
entry has not seen changes what the call itself looks at, and how `hearers` finds them.  Does not
own streams and handlers that were there in the capture (effects/test_order_of_effects.py).
"""

from __future__ import annotations

import codecs
import functools
import io
import logging
import logging.handlers
import sys
import types
import warnings

import pytest
import torch

import magpy
from magpy import _tensor
from magpy.guards.checks import runs_below
from magpy.ir.ops import Unwatched
from magpy.unwatched import autograd, listeners
from magpy.unwatched.reachability import Reach, within_reach


class World:
    """A list that the call and what hears of it both change."""

    def __init__(self):
        self.log = []
        self.logger = logging.Logger("heard")
        self.logger.addHandler(logging.NullHandler())
        self.stream = io.StringIO()

    def hear(self, *args, **kwargs):
        self.log.append("heard")
        return True


class Stream(io.StringIO):
    """A stream in Python."""

    def __init__(self, hear):
        super().__init__()
        self.hear = hear

    def write(self, text):
        self.hear(text)
        return len(text)


def _stream(world):
    return Stream(world.hear)


class Handler(logging.Handler):
    """A handler in Python."""

    def __init__(self, hear):
        super().__init__()
        self.hear = hear

    def emit(self, record):
        self.hear(record)


class Formatter(logging.Formatter):
    """A formatter in Python."""

    def __init__(self, hear):
        super().__init__()
        self.hear = hear

    def format(self, record):
        self.hear(record)
        return "text"


def _printed(world):
    print("a")


def _printed_to(world):
    print("a", file=world.stream)


def _logged(world):
    world.logger.warning("a")


def _warned(world):
    warnings.warn("a", stacklevel=1)


def _stdout(world, patch):
    patch.setattr(sys, "stdout", _stream(world))


def _write_of_stdout(world, patch):
    stream = Stream(lambda text: None)
    patch.setattr(sys, "stdout", stream)
    patch.setattr(stream, "hear", world.hear)


def _another_file(world, patch):
    patch.setattr(world, "stream", _stream(world))


def _handler(world, patch):
    world.logger.addHandler(Handler(world.hear))


def _handler_of_the_parent(world, patch):
    parent = logging.Logger("parent")
    parent.addHandler(Handler(world.hear))
    world.logger.parent = parent


def _filter(world, patch):
    world.logger.addFilter(world.hear)


def _filter_of_the_handler(world, patch):
    handler = logging.StreamHandler(io.StringIO())
    handler.addFilter(world.hear)
    world.logger.handlers[:] = [handler]


def _emit_of_the_handler(world, patch):
    world.logger.handlers[0].handle = world.hear


def _formatter(world, patch):
    handler = logging.StreamHandler(io.StringIO())
    handler.setFormatter(Formatter(world.hear))
    world.logger.handlers[:] = [handler]


def _stream_of_a_handler(world, patch):
    world.logger.handlers[:] = [logging.StreamHandler(_stream(world))]


def _factory_of_records(world, patch):
    made = logging.LogRecord

    def factory(*args, **kwargs):
        world.hear()
        return made(*args, **kwargs)

    patch.setattr(logging, "_logRecordFactory", factory)


def _showwarning(world, patch):
    patch.setattr(warnings, "showwarning", world.hear)


def _handle_of_the_logger(world, patch):
    world.logger.handle = world.hear


def _write_of_c(world, patch):
    world.stream = _Plain()
    world.stream.write = world.log.append


class _Plain:
    def flush(self):
        pass


CASES = [
    (_printed_to, _write_of_c),
    (_printed, _stdout),
    (_printed_to, _another_file),
    (_warned, _showwarning),
    (_logged, _handler),
    (_logged, _handler_of_the_parent),
    (_logged, _filter),
    (_logged, _filter_of_the_handler),
    (_logged, _emit_of_the_handler),
    (_logged, _formatter),
    (_logged, _stream_of_a_handler),
    (_logged, _factory_of_records),
    (_logged, _handle_of_the_logger),
]


def _calls(call, change, wrap, patch):
    """What five calls return and leave behind, the change being made before the fourth."""
    world = World()

    def f(x):
        world.log.append("call")
        call(world)
        world.log.append("end")
        return x + 1

    target = wrap(f)
    found = []
    for i in range(5):
        if i == 3:
            change(world, patch)
        if call is _warned:
            warnings.onceregistry.clear()
            globals().pop("__warningregistry__", None)
        found.append((target(torch.ones(2)).tolist(), list(world.log)))
    return found, target


@pytest.mark.filterwarnings("always")
@pytest.mark.parametrize(("call", "change"), CASES)
def test_python_put_in_place_later_is_heard_as_in_eager(call, change, monkeypatch):
    with monkeypatch.context() as patch:
        expected, _ = _calls(call, change, lambda f: f, patch)
    with monkeypatch.context() as patch:
        found, target = _calls(call, change, lambda f: magpy.compile(f, backend="eager"), patch)
    assert len(expected[-1][1]) >= 12, "the change is heard of"
    assert found == expected
    assert magpy.stats(target).hits, "and before it an entry is used"


@pytest.mark.parametrize("call", [_printed, _printed_to, _logged, _warned])
def test_nobody_new_hears_and_entries_are_used(call, monkeypatch):
    with monkeypatch.context() as patch:
        found, target = _calls(call, lambda world, patch: None, magpy.compile, patch)
    assert magpy.stats(target).hits >= 3


def _codes(*asked):
    found = (c[1] if isinstance(c, tuple) else c for c in listeners.hearers(*asked).codes)
    return [c for c in found if isinstance(c, types.CodeType)]


def test_a_stream_of_c_has_no_hearers():
    stream = io.StringIO()
    heard = listeners.hearers(print, stream)
    assert (heard.codes, heard.given) == ([], [stream])
    assert _codes(print, sys.__stdout__) == []


def test_the_methods_of_a_stream_are_found_without_running_them():
    class Told:
        @property
        def write(self):
            raise AssertionError

        def __getattr__(self, name):
            raise AssertionError

    write, asked = vars(Told)["write"].fget.__code__, Told.__getattr__.__code__
    assert set(_codes(print, Told())) == {write, asked}


def test_what_is_in_the_instance_is_found():
    stream = Stream(print)
    assert Stream.write.__code__ in _codes(print, stream)
    stream.write = heard = lambda text: None
    assert heard.__code__ in _codes(print, stream)


def test_a_method_of_c_is_no_function_but_has_what_it_is_a_method_of():
    stream, kept = _Plain(), []
    stream.write = kept.append
    heard = listeners.hearers(print, stream)
    assert heard.codes[-1] == ("write", "append")
    assert any(v is kept for v in heard.given)
    assert listeners.containers(heard) == [kept]


def test_streams_that_a_stream_writes_to_are_found():
    class Raw(io.RawIOBase):
        def writable(self):
            return True

        def write(self, data):
            return len(data)

    raw = Raw()
    outer = io.TextIOWrapper(io.BufferedWriter(raw), write_through=True)
    assert Raw.write.__code__ in _codes(print, outer)
    assert Stream.write.__code__ in _codes(print, codecs.getwriter("utf-8")(Stream(print)))
    outer.detach()
    assert _codes(print, outer) == []


def test_what_is_shown_hears_how_it_becomes_text():
    class Shown:
        def __str__(self):
            return ""

    shown = Shown()
    heard = listeners.hearers(print, io.StringIO(), shown)
    assert heard.codes == [Shown.__str__.__code__]
    assert shown in heard.given


def test_what_shows_warnings_hears_and_the_stream_that_it_writes_to(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Stream(print))
    monkeypatch.setattr(warnings, "formatwarning", shown := lambda *args, **kwargs: "")
    codes = _codes(warnings.warn, None)
    assert shown.__code__ in codes
    assert Stream.write.__code__ in codes


def test_a_logger_hears_through_its_parents_where_it_propagates():
    parent, child = logging.Logger("parent"), logging.Logger("child")
    child.parent = parent
    child.addHandler(logging.NullHandler())
    inner = Handler(print)
    parent.addHandler(logging.handlers.MemoryHandler(0, target=inner))
    parent.addFilter(hear := lambda record: True)
    codes = _codes(child.info, child)
    assert Handler.emit.__code__ in codes
    assert hear.__code__ in codes
    child.propagate = False
    codes = _codes(child.info, child)
    assert Handler.emit.__code__ not in codes
    assert hear.__code__ not in codes


def test_no_property_of_a_handler_is_read():
    class Odd(logging.Handler):
        @property
        def stream(self):
            raise RuntimeError("not connected")

        def emit(self, record):
            pass

    log = logging.Logger("odd")
    log.addHandler(Odd())

    def f(x):
        log.warning("a")
        return x + 1

    f = magpy.compile(f, backend="eager")
    for _ in range(3):
        f(torch.ones(1))
    assert magpy.stats(f).hits


class Called:
    """A hook that is an object."""

    def __call__(self, grad):
        return grad


def test_hooks_are_told_apart_by_the_tensors_that_they_are_of():
    a, b = (torch.ones(1, requires_grad=True) for _ in range(2))
    world, called = World(), Called()
    a.register_hook(world.hear)
    a.register_hook(functools.partial(called))
    hear, call = World.hear.__code__, Called.__call__.__code__
    heard = listeners.hooks(a, b)
    assert heard.codes == [None, hear, Called, call, None]
    assert heard.given[0] is world
    assert any(v is called for v in heard.given)
    assert listeners.told(heard.codes, Reach()) != listeners.told(
        listeners.hooks(b, a).codes, Reach()
    )
    assert listeners.hooks(b, a).codes == [None, None, hear, Called, call]


def _holds(ask, of, looks):
    heard = ask(*of)
    reach = heard.reach()
    return runs_below(Unwatched(ask, of, heard.codes, reach), looks, [])


def test_a_check_of_what_runs_below_fails_for_functions_that_are_others():
    stream = Stream(print)
    check = _holds(listeners.hearers, (print, stream), {})
    assert check(print, stream)
    stream.write = lambda text: None
    assert not check(print, stream)


def test_a_check_of_what_runs_below_holds_for_a_function_that_is_made_anew():
    def made():
        return lambda text: None

    stream = Stream(made())
    stream.write = made()
    check = _holds(listeners.hearers, (print, stream), {})
    stream.write = made()
    assert check(print, stream)


def test_a_check_of_what_runs_below_fails_where_it_gets_hold_of_what_the_run_looks_at():
    world = World()
    stream, kept = _stream(world), world.log
    check = _holds(listeners.hearers, (print, stream), {id(kept): {None}})
    assert check(print, stream)
    world.log = []
    assert not check(print, stream)
    world.log = kept
    assert check(print, stream)


S: dict = {}


class Holder:
    """Something that holds a dict."""

    def __init__(self, d):
        self.d = d


def _set(holder):
    holder.d["k"] = 5.0


class Setting:
    """A function that is an object."""

    def __init__(self, holder):
        self.holder = holder

    def __call__(self, *args):
        _set(self.holder)
        return True


def _filters(holder):
    def default(record, into=[holder]):  # noqa: B006
        into[0].d["k"] = 5.0
        return True

    return {
        "helper": lambda record: _set(holder) is None,
        "object": Setting(holder),
        "bound": Setting(holder).__call__,
        "partial": functools.partial(Setting.__call__, Setting(holder)),
        "default": default,
    }


@pytest.mark.parametrize("kind", _filters(Holder({})))
@pytest.mark.parametrize("there", [True, False])
def test_what_gets_hold_of_a_dict_of_the_call_is_noticed(kind, there):
    def calls(wrap):
        S.clear()
        if there:
            S["k"] = 1.0
        holder = Holder({"k": 0.0})
        log = logging.Logger("held")
        log.addHandler(logging.NullHandler())
        log.addFilter(_filters(holder)[kind])

        def f(x):
            log.warning("a")
            return x * S.get("k", 1.0)

        target, found = wrap(f), []
        for i in range(6):
            if i == 3:
                holder.d = S
            found.append(target(torch.ones(1)).item())
            if not there:
                S.clear()
        return found, target

    expected, _ = calls(lambda f: f)
    found, target = calls(lambda f: magpy.compile(f, backend="eager"))
    assert 5.0 in expected
    assert found == expected
    assert magpy.stats(target).hits


def test_what_an_effect_keeps_and_somebody_takes_away_does_not_matter():
    kept, settings = [], {"scale": 2.0}

    @magpy.effect
    def note(v):
        kept.append(v)

    def f(x):
        note(settings)
        return x * settings["scale"]

    f = magpy.compile(f, backend="eager")
    for _ in range(6):
        f(torch.ones(1))
        assert len(kept) == 1
        kept.clear()
    assert magpy.stats(f).hits == 5


def test_an_effect_that_gets_hold_of_what_it_was_given_is_noticed():
    def calls(wrap):
        kept, settings = [], {"scale": 2.0}

        @magpy.effect
        def note(v):
            for c in kept:
                c["scale"] = 5.0
            kept.append(v)

        def f(x):
            note(settings)
            return x * settings["scale"]

        f = wrap(f)
        return [f(torch.ones(1)).item() for _ in range(4)]

    assert calls(lambda f: magpy.compile(f, backend="eager")) == calls(lambda f: f)


def test_a_hook_that_is_made_anew_in_each_call_hits():
    w = torch.ones(2, requires_grad=True)

    def f(x):
        (w * x).sum().backward()
        return x * 2

    f = magpy.compile(f, backend="eager")
    for _ in range(6):
        w.grad = None
        handle = w.register_hook(lambda g: None)
        f(torch.ones(2))
        handle.remove()
    assert magpy.stats(f).hits == 5


def test_what_helpers_of_functions_reach_is_reached():
    kept, apart = [], []

    def helper():
        kept.append(1)

    def outer():
        helper()

    reach = within_reach([outer], ())
    assert reach.of(id(kept), None)
    assert not reach.of(id(apart), None)


def test_a_name_that_is_not_there_yet_is_reached():
    holder = Holder({})

    def write():
        holder.k = 1

    reach = within_reach([write], ())
    assert reach.of(id(vars(holder)), "k")
    assert not reach.of(id(vars(holder)), "other")
    assert not reach.of(id(holder.d), "k")


def test_classes_of_a_librarys_objects_in_a_container_are_not_reached():
    seen = []

    def keep(message):
        seen.append(message)

    empty = within_reach([keep], ())
    seen.append(warnings.WarningMessage("", UserWarning, "", 1))
    seen.append(Holder({}))
    full = within_reach([keep], ())
    assert not full.of(id(warnings.WarningMessage), "__str__")
    assert full.of(id(Holder), "__str__")  # the program's may have it changed
    assert not empty.of(id(Holder), "__str__")
    assert within_reach([keep], (warnings.WarningMessage,)).of(id(warnings.WarningMessage), None)


def test_the_walk_is_the_same_twice_where_it_ends_early():
    class Many:
        def __init__(self, i):
            self.i = [i]

        def write(self, name):
            return getattr(self, name)

    held = [Many([Many(i) for _ in range(10)]) for i in range(300)]

    def write():
        held[0].write("i")

    assert within_reach([write], ()) == within_reach([write], ())


def test_the_walk_ends_where_much_is_held():
    many = [[i] for i in range(100_000)]
    last = Holder(many)
    reach = within_reach([_set], (last,))
    assert reach.of(id(many), None)
    assert len(reach.wholes) < 1000


def _node_hook(w, keep, hook):
    keep[0].register_hook(hook)


def _node_prehook(w, keep, hook):
    keep[0].register_prehook(hook)


def _multi_hook(w, keep, hook):
    keep.append(torch.autograd.graph.register_multi_grad_hook([w], hook))


def _post_accumulate(w, keep, hook):
    w.register_post_accumulate_grad_hook(hook)


def _tensor_hook(w, keep, hook):
    w.register_hook(functools.partial(hook))


@pytest.mark.parametrize(
    "register", [_node_hook, _node_prehook, _multi_hook, _post_accumulate, _tensor_hook]
)
def test_a_hook_that_is_registered_later_is_heard(register):
    def calls(wrap):
        settings, w = {"k": 1.0}, torch.nn.Parameter(torch.ones(2))
        keep = [w.expand_as(w).grad_fn.next_functions[0][0]]

        def hook(*given):
            settings["k"] = 5.0

        def f(x):
            (w * x).sum().backward()
            return x * settings["k"]

        target, found = wrap(f), []
        for i in range(6):
            settings["k"] = 1.0
            if i == 3:
                register(w, keep, hook)
            found.append(target(torch.ones(2)).tolist())
        return found, target

    expected, _ = calls(lambda f: f)
    found, target = calls(lambda f: magpy.compile(f, backend="eager"))
    assert expected[-1] == [5.0, 5.0]
    assert found == expected
    assert magpy.stats(target).hits


def test_the_hooks_of_nodes_are_listed():
    w = torch.ones(2, requires_grad=True)
    made = w * 2
    node = made.grad_fn
    last = node.next_functions[0][0]
    hooks = [lambda *given, i=i: None for i in range(5)]
    made.register_hook(hooks[0])
    node.register_prehook(hooks[1])
    node.register_hook(hooks[2])
    last.register_hook(hooks[3])
    w.register_hook(hooks[4])
    assert _tensor.node_hooks(node) == hooks[:3]
    assert set(_tensor.node_hooks(w)) == set(_tensor.node_hooks(last)) == set(hooks[3:])
    assert _tensor.node_hooks(torch.ones(2)) == []
    assert _tensor.node_hooks(object()) == []
    assert autograd.functions_at(w) == (hooks[4], hooks[3])
    assert set(autograd.functions_at(made)) == set(hooks)
