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
import warnings

import pytest
import torch

import magpy
from magpy import _tensor
from magpy.guards.checks import runs_below
from magpy.ir.ops import Unwatched
from magpy.unwatched import autograd, listeners


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
    assert magpy.stats(target).hits or call is _warned, "and before it an entry is used"


@pytest.mark.usefixtures("shown_as_ever")
@pytest.mark.parametrize("call", [_printed, _printed_to, _logged, _warned])
def test_nobody_new_hears_and_entries_are_used(call, monkeypatch):
    with monkeypatch.context() as patch:
        found, target = _calls(call, lambda world, patch: None, magpy.compile, patch)
    assert magpy.stats(target).hits >= 3


def _runs(*asked):
    return listeners.hearers(*asked).functions


def test_a_stream_of_c_runs_nothing_of_the_programs():
    stream = io.StringIO()
    heard = listeners.hearers(print, stream)
    assert (heard.functions, heard.objects) == ([], [stream])
    assert _runs(print, sys.__stdout__) == []


def test_the_methods_of_a_stream_are_found_without_running_them():
    class Told:
        @property
        def write(self):
            raise AssertionError

        def __getattr__(self, name):
            raise AssertionError

    assert _runs(print, Told()) == [vars(Told)["write"].fget, Told.__getattr__]


def test_what_is_in_the_instance_is_found():
    stream = Stream(print)
    assert _runs(print, stream) == [Stream.write]
    stream.write = heard = lambda text: None
    assert _runs(print, stream) == [heard]


def test_a_class_of_a_stream_that_leaves_writing_to_python_runs_nothing():
    class Named(io.StringIO):
        @property
        def name(self):
            raise AssertionError

    assert _runs(print, Named()) == []


def test_a_method_of_c_changes_what_it_is_a_method_of():
    stream, kept = _Plain(), []
    stream.write = kept.append
    assert _runs(print, stream) == [stream.write, _Plain.flush]


def test_a_method_of_a_stream_runs_what_the_stream_does():
    handler, outer = logging.StreamHandler(io.StringIO()), io.TextIOWrapper(io.BytesIO())
    handler.flush = outer.flush
    logger = logging.Logger("heard")
    logger.addHandler(handler)
    assert _runs(logger.warning, logger) == []
    handler.flush = Stream(print).flush
    assert Stream.write in _runs(logger.warning, logger)


def test_streams_that_a_stream_writes_to_are_found():
    class Raw(io.RawIOBase):
        def writable(self):
            return True

        def write(self, data):
            return len(data)

    raw = Raw()
    outer = io.TextIOWrapper(io.BufferedWriter(raw), write_through=True)
    assert _runs(print, outer) == [Raw.write]
    assert Stream.write in _runs(print, codecs.getwriter("utf-8")(Stream(print)))
    outer.detach()
    assert _runs(print, outer) == []


def test_what_is_shown_runs_how_it_becomes_text():
    class Shown:
        def __str__(self):
            return ""

    shown = Shown()
    assert _runs(print, io.StringIO(), shown) == [Shown]
    assert _runs(print, io.StringIO(), [{"a": (shown,)}]) == [Shown]
    assert _runs(print, io.StringIO(), [{"a": (1, torch.ones(1), torch.nn.ReLU())}]) == []


def test_what_shows_warnings_hears_and_the_stream_that_it_writes_to(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Stream(print))
    monkeypatch.setattr(warnings, "formatwarning", shown := lambda *args, **kwargs: "")
    found = _runs(warnings.warn, None)
    assert shown in found
    assert Stream.write in found


def test_a_logger_hears_through_its_parents_where_it_propagates():
    parent, child = logging.Logger("parent"), logging.Logger("child")
    child.parent = parent
    child.addHandler(logging.NullHandler())
    inner = Handler(print)
    parent.addHandler(logging.handlers.MemoryHandler(0, target=inner))
    parent.addFilter(hear := lambda record: True)
    found = _runs(child.info, child)
    assert Handler.emit in found
    assert hear in found
    child.propagate = False
    assert _runs(child.info, child) == []


def _level(logger, patch):
    logger.setLevel(logging.DEBUG)
    logger._cache.clear()  # as of one that `getLogger` gives


def _level_of_the_parent(logger, patch):
    logger.parent.setLevel(logging.DEBUG)
    logger._cache.clear()


def _asked_by_the_instance(logger, patch):
    logger.isEnabledFor = lambda level: True


def _asked_by_the_class(logger, patch):
    patch.setattr(logging.Logger, "getEffectiveLevel", lambda self: logging.DEBUG)
    logger._cache.clear()


def _another_class(logger, patch):
    class Mine(logging.Logger):
        def isEnabledFor(self, level):
            return True

    logger.__class__ = Mine


def _kept_that_it_is_on(logger, patch):
    logger._cache[logging.DEBUG] = True


@pytest.mark.parametrize(
    "change",
    [
        *(_level, _level_of_the_parent, _asked_by_the_instance, _asked_by_the_class),
        *(_another_class, _kept_that_it_is_on),
    ],
)
def test_nothing_hears_of_a_logger_that_is_off_until_it_is_on(change, monkeypatch):
    def outcome(wrap):
        world = World()
        parent = logging.Logger("parent", logging.WARNING)
        world.logger.parent = parent
        parent.addHandler(Handler(world.hear))

        def f(x):
            world.logger.debug("a %s", len(world.log))
            return x + len(world.log)

        f, found = wrap(f), []
        for i in range(6):
            if i == 4:
                change(world.logger, monkeypatch)
            found.append((f(torch.zeros(2)).tolist(), list(world.log)))
        monkeypatch.undo()
        return found, f

    wanted, _ = outcome(lambda f: f)
    found, f = outcome(lambda f: magpy.compile(f, backend="eager"))
    assert found == wanted and len(wanted[-1][1]) == 2
    assert magpy.stats(f).hits == 3


def test_a_logger_that_is_off_is_asked_for_levels_alone():
    logger = logging.getLogger("magpy.tests.off")
    logger.setLevel(logging.INFO)
    logger.addHandler(handler := Handler(print))
    off = listeners.hearers(logging.Logger.debug, logger)
    assert off.functions == [] and handler not in off.objects and logger in off.objects
    on = listeners.hearers(logging.Logger.info, logger)
    assert Handler.emit in on.functions and on.passes != off.passes
    logger.disabled = True
    assert listeners.hearers(logging.Logger.info, logger).functions == []
    logger.removeHandler(handler)


def test_a_wrapper_of_torchs_runs_what_it_wraps():
    @torch.no_grad()
    def hook(gradient):
        pass

    assert listeners.runs([hook]).functions == [hook]
    foreign = functools.wraps(torch.nn.functional.relu)(lambda: hook)
    assert listeners.runs([foreign]).functions == [hook]
    assert listeners.runs([functools.partial(Handler.emit, None)]).functions == [Handler.emit]
    assert listeners.runs([print, torch.nn.functional.relu]).functions == []


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
    assert "Odd" in magpy.stats(f).reasons[0]


class Called:
    """A hook that is an object."""

    def __call__(self, grad):
        return grad


def test_hooks_of_tensors_are_found():
    a, b = (torch.ones(1, requires_grad=True) for _ in range(2))
    world, called = World(), Called()
    assert listeners.hooks(a, b).functions == []
    a.register_hook(world.hear)
    b.register_hook(functools.partial(called))
    assert listeners.hooks(a).functions == [World.hear]
    assert listeners.hooks(b).functions == [called]


def test_a_check_of_what_runs_below_fails_where_something_of_the_programs_does():
    stream = io.StringIO()
    check = runs_below(Unwatched(listeners.hearers, (print, stream), []))
    assert check(print, stream)
    assert not check(print, Stream(print))


def test_a_check_of_what_runs_below_fails_where_other_records_pass():
    logger = logging.Logger("passes")
    logger.addHandler(logging.NullHandler())
    before = listeners.hearers(logger.info, logger)
    check = runs_below(Unwatched(listeners.hearers, (logger.info, logger), before.passes))
    assert check(logger.info, logger)
    logger.setLevel(logging.ERROR)
    assert not check(logger.info, logger)


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
    assert "runs in it" in magpy.stats(target).reasons[0]


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
    assert "note runs in it" in magpy.stats(f).reasons[0]


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


def test_a_hook_that_is_made_anew_in_each_call_is_refused():
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
    assert "a backward pass runs" in magpy.stats(f).reasons[0]


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
