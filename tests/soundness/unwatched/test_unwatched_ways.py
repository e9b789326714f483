"""The ways by which Python that runs unwatched gets at what the call looks at.

Owns: programs in which the code is the same and what it calls is another (wrappers, callbacks,
special methods, descriptors), in which C code holds what it gets at (weak references, generators,
thread locals, imports), and what is shown inside other things; and that no code of the program's
runs where guards look.  Does not own hearers that are replaced themselves
(effects/test_listeners_added_later.py), nor what they get hold of by plain attributes
(unwatched/test_unwatched_later.py).
"""

from __future__ import annotations

import contextvars
import functools
import io
import itertools
import logging
import logging.handlers
import sys
import threading
import types
import warnings
import weakref

import pytest
import torch

import magpy
from magpy import _interp, _tensor
from magpy.objects import contents as held
from magpy.unwatched import listeners
from tests.soundness.unwatched_programs import check_harmless, check_noticed, compiled


class Stream:
    """A stream that does nothing."""

    def write(self, text):
        pass

    def flush(self):
        pass


class Dict(dict):
    """A dict that can be referred to weakly."""


class Holder:
    """An object with a dict."""

    def __init__(self, d):
        self.d = d


class Double(torch.autograd.Function):
    """Twice a tensor."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


def _print(stream):
    return lambda: print("x", file=stream)


def _once(f):
    @functools.wraps(f)
    def wrapper(*args):
        return f(*args)

    return wrapper


def wrapped_function(world):
    stream, d = Stream(), world.read
    stream.write = _once(lambda text: len(d))
    return _print(stream), lambda: setattr(
        stream, "write", _once(lambda text: d.__setitem__("k", 5.0))
    )


def hook_under_no_grad(world):
    d = world.read

    @torch.no_grad()
    def looks(gradient):
        d["k"]

    @torch.no_grad()
    def changes(gradient):
        d["k"] = 5.0

    p = torch.ones(2, requires_grad=True)
    handle = p.register_hook(looks)

    def change():
        handle.remove()
        p.register_hook(changes)

    return lambda: (p * 2).sum().backward(), change


def filter_in_a_wrapper(world):
    d = world.read
    first = _once(lambda record: d["k"] >= 0)

    def change():
        world.log.removeFilter(first)
        world.log.addFilter(_once(lambda record: d.__setitem__("k", 5.0) or True))

    world.log.addFilter(first)
    return lambda: world.log.warning("a"), change


def partial_of_another_function(world):
    def call(f, text):
        f(text)

    stream = Stream()
    stream.write = functools.partial(call, lambda text: None)
    return _print(stream), lambda: setattr(stream, "write", functools.partial(call, world.put))


def callbacks_in_a_list(world):
    class Calls(Stream):
        def write(self, text):
            for c in self.called:
                c(text)

    stream = Calls()
    stream.called = [lambda text: None]
    return _print(stream), lambda: stream.called.__setitem__(0, world.put)


def method_of_another_name(world):
    class Two(Stream):
        def other(self, text):
            world.put()

    return _print(Two()), lambda: setattr(Two, "write", Two.other)


def bound_method_on_a_class(world):
    class Own(io.StringIO):
        pass

    return _print(Own()), lambda: setattr(Own, "write", world.put)


def partial_method_on_a_class(world):
    class Own(io.StringIO):
        def other(self, one, text):
            world.put()

    return _print(Own()), lambda: setattr(Own, "write", functools.partialmethod(Own.other, 1))


def item_of_an_object(world):
    class Store(Holder):
        def __setitem__(self, key, value):
            self.d[key] = value

    class Stores(Stream):
        def write(self, text):
            self.store["k"] = 5.0

    stream = Stores()
    stream.store = Store(world.apart)
    return _print(stream), lambda: setattr(stream.store, "d", world.read)


def context_of_an_object(world):
    class Context(Holder):
        def __enter__(self):
            self.d["k"] = 5.0

        def __exit__(self, *raised):
            pass

    class Enters(Stream):
        def write(self, text):
            with self.context:
                pass

    stream = Enters()
    stream.context = Context(world.apart)
    return _print(stream), lambda: setattr(stream.context, "d", world.read)


def setter_of_an_object(world):
    class Sets(Stream):
        held = world.apart
        level = property(None, lambda self, value: self.held.__setitem__("k", value))

        def write(self, text):
            self.level = 5.0

    stream = Sets()
    return _print(stream), lambda: setattr(Sets, "held", world.read)


def class_that_is_called(world):
    class Row:
        store = world.apart

        def __init__(self, text):
            self.store["k"] = 5.0

    class Rows(Stream):
        def write(self, text):
            Row(text)

    return _print(Rows()), lambda: setattr(Row, "store", world.read)


def generator_that_is_sent_to(world):
    holder = Holder(world.apart)

    def sink():
        while True:
            yield
            holder.d["k"] = 5.0

    stream, made = Stream(), sink()
    next(made)
    stream.write = made.send
    return _print(stream), lambda: setattr(holder, "d", world.read)


def weak_reference(world):
    class Weak(Stream):
        def write(self, text):
            self.ref().d["k"] = 5.0

    stream = Weak()
    stream.kept = Holder(world.apart)
    stream.ref = weakref.ref(stream.kept)
    return _print(stream), lambda: setattr(stream.kept, "d", world.read)


def thread_local(world):
    local = threading.local()
    local.d = world.apart

    class Local(Stream):
        def write(self, text):
            local.d["k"] = 5.0

    return _print(Local()), lambda: setattr(local, "d", world.read)


def import_in_a_function(world):
    module = types.ModuleType("imported_where_it_runs")
    module.d = world.apart
    sys.modules[module.__name__] = module

    class Imports(Stream):
        def write(self, text):
            from imported_where_it_runs import d

            d["k"] = 5.0

    return _print(Imports()), lambda: setattr(module, "d", world.read)


def argument_of_an_effect(world):
    holder = Holder(world.apart)

    @magpy.effect
    def tell(given):
        given.d["k"] = 5.0

    return lambda: tell(holder), lambda: setattr(holder, "d", world.read)


def _shown(wrap):
    def case(world):
        class Shown:
            def __str__(self):
                return "a"

            __repr__ = __str__

        show, how = wrap(Shown()), world.log.warning
        return lambda: how("%s", show()), lambda: setattr(
            Shown, "__repr__", lambda self: world.put() or ""
        )

    return case


class Shows(torch.nn.Module):
    """A module that says what it has."""

    def __init__(self, shown):
        super().__init__()
        self.shown = shown

    def extra_repr(self):
        return repr(self.shown)


def always(made):
    return lambda: made


in_a_new_list = _shown(lambda shown: lambda: [shown])
as_a_key = _shown(lambda shown: always({shown: 1}))
in_a_namespace = _shown(lambda shown: always(types.SimpleNamespace(a=shown)))
in_an_exception = _shown(lambda shown: always(ValueError(shown, 1)))
in_a_module = _shown(lambda shown: always(Shows(shown)))


def number_that_is_shown(world):
    class Shown(float):
        def __str__(self):
            return "a"

    shown = Shown(1)
    return lambda: world.log.warning("%s", shown), lambda: setattr(
        Shown, "__str__", lambda self: world.put() or ""
    )


def queue_of_a_handler(world):
    class Queue:
        def put_nowait(self, record):
            pass

    queue = Queue()
    world.log.addHandler(logging.handlers.QueueHandler(queue))
    return lambda: world.log.warning("a"), lambda: setattr(queue, "put_nowait", world.put)


def hook_of_a_function_of_the_programs(world):
    made = Double.apply(torch.ones(2, requires_grad=True))
    total = made.sum()
    return (
        lambda: total.backward(retain_graph=True),
        lambda: made.grad_fn.register_hook(lambda *given: world.put()),
    )


CASES = [
    *(wrapped_function, hook_under_no_grad, filter_in_a_wrapper, partial_of_another_function),
    *(callbacks_in_a_list, method_of_another_name, bound_method_on_a_class),
    *(partial_method_on_a_class, item_of_an_object, context_of_an_object, setter_of_an_object),
    *(class_that_is_called, generator_that_is_sent_to, weak_reference, thread_local),
    *(import_in_a_function, argument_of_an_effect, number_that_is_shown),
    *(queue_of_a_handler, hook_of_a_function_of_the_programs),
]
SHOWN = {
    "in a new list": in_a_new_list,
    "as a key": as_a_key,
    "in a namespace": in_a_namespace,
    "in an exception": in_an_exception,
    "in a module": in_a_module,
}
ALL = [pytest.param(c, id=c.__name__) for c in CASES]
ALL += [pytest.param(c, id=name) for name, c in SHOWN.items()]


@pytest.mark.parametrize("case", ALL)
def test_what_gets_at_what_the_call_reads_is_noticed(case):
    check_noticed(case)


@pytest.mark.parametrize("case", ALL)
def test_what_keeps_to_itself_does_no_harm(case):
    check_harmless(case)


def test_a_handler_of_captured_warnings_is_noticed():
    logging.captureWarnings(True)
    own = logging.getLogger("py.warnings")
    own.addHandler(logging.NullHandler())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = logging._showwarning
            check_noticed(_logger_of_warnings(own))
    finally:
        own.handlers.clear()
        logging.captureWarnings(False)


def _logger_of_warnings(own):
    def case(world):
        class Puts(logging.Handler):
            def emit(self, record):
                world.put()

        def act():
            warnings.warn("a", stacklevel=1)

        handler = Puts()
        return act, lambda: own.addHandler(handler)

    return case


def _weak(d):
    made = weakref.ref(d)
    return lambda: made()


def _context(d):
    made = contextvars.ContextVar("d")
    made.set(d)
    return lambda: made.get()


def _local(d):
    made = threading.local()
    made.d = d
    return lambda: made.d


def _values(d):
    made = weakref.WeakValueDictionary({"a": d})
    return lambda: made["a"]


def _cycle(d):
    made = itertools.cycle([d])
    return lambda: next(made)


def _cached(d):
    @functools.lru_cache(None)
    def made():
        return d

    made()
    return lambda: made()


WAYS = [_weak, _context, _local, _values, _cycle, _cached]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_what_c_code_holds_is_seen_in_the_call_that_is_watched(way):
    def calls(wrap):
        read, stream = Dict(k=1.0), Stream()
        find = way(read)

        def write(text):
            find()["k"] = 5.0

        stream.write = write

        def f(x):
            print("x", file=stream)
            return x * read["k"]

        target, found = wrap(f), []
        for _ in range(5):
            read["k"] = 1.0
            found.append(target(torch.ones(1)).item())
        return found

    assert calls(lambda f: f) == [5.0] * 5
    assert calls(compiled) == [5.0] * 5


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_who_looks_at_what_the_call_has_changed_sees_it(way):
    def calls(wrap):
        state, said, stream = Dict(step=0), [], Stream()
        find = way(state)

        def write(text):
            said.append(find()["step"])

        stream.write = write

        def f(x):
            state["step"] += 1
            print("x", file=stream)
            return x * state["step"]

        target = wrap(f)
        for _ in range(5):
            target(torch.ones(1))
        return said

    assert calls(lambda f: f) == [i for i in range(1, 6) for _ in range(2)]
    assert calls(compiled) == calls(lambda f: f)


class Lazy:
    """A proxy outside of the context where it stands for something."""

    asked: list[str] = []  # noqa: RUF012

    @property
    def __dict__(self):
        Lazy.asked.append("dict")
        raise RuntimeError("there is no context")

    def __getattribute__(self, name):
        Lazy.asked.append(name)
        return object.__getattribute__(self, name)


class Meta(type):
    """A metaclass that hears of what is asked."""

    heard: list[str] = []  # noqa: RUF012

    def __eq__(cls, other):
        Meta.heard.append("eq")
        return cls is other

    __hash__ = type.__hash__

    def __getattribute__(cls, name):
        Meta.heard.append(name)
        return super().__getattribute__(name)


def test_nothing_of_the_program_runs_where_it_is_told_what_is_in_reach():
    class Odd(metaclass=Meta):
        d = 1

    class Names(Stream):
        on = False

        def write(self, text):
            if self.on:
                self.lazy.d, self.odd.d  # noqa: B018

    stream = Names()
    stream.lazy, stream.odd = Lazy(), Odd()

    def f(x):
        print("x", file=stream)
        return x * 2

    c = compiled(f)
    Lazy.asked.clear()
    Meta.heard.clear()
    for _ in range(4):
        assert c(torch.ones(1)).item() == 2
    assert Lazy.asked == Meta.heard == []
    assert "Names runs in it" in magpy.stats(c).reasons[0]


def test_a_failure_of_magpy_does_not_reach_the_program(monkeypatch):
    def f(x):
        print("x", file=stream)
        return x * 2

    stream, c = io.StringIO(), compiled(f)
    monkeypatch.setattr(listeners.Heard, "stream", None)
    with pytest.warns(magpy.MagpyWarning, match="magpy failed"):
        assert c(torch.ones(1)).item() == 2
    assert stream.getvalue() == "x\n"


def test_the_order_in_which_hooks_are_found_is_not_told():
    hooks = [lambda g: None, lambda g: g * 1, lambda g: g + 0, lambda g: g - 0]
    p = torch.ones(2, requires_grad=True)

    def f(x, hidden):
        (hidden.sum() * x.sum()).backward(retain_graph=True)
        return x * 2

    c, kept = compiled(f), []
    for i in range(12):
        hidden = p * 2
        for hook in hooks:
            hidden.register_hook(hook)
            hidden = hidden.sin()
        kept.append([torch.ones(1, requires_grad=True).exp().grad_fn for _ in range(i * 3 % 7)])
        c(torch.ones(1), hidden)
    assert "a backward pass runs" in magpy.stats(c).reasons[0]


def test_a_list_that_grows_is_shown_without_new_captures():
    class Row:
        def __repr__(self):
            return "row"

    rows, stream = [], io.StringIO()

    def f(x):
        print(rows, file=stream)
        return x * 2

    c = compiled(f)
    for _ in range(8):
        rows.append(Row())
        c(torch.ones(1))
    assert stream.getvalue() == "".join(f"[{', '.join(['row'] * n)}]\n" for n in range(1, 9))
    # The text is made while the call is watched, and is another one each time.
    assert magpy.stats(c).captures


@pytest.mark.parametrize("change", ["level", "disabled", "handler", "disable"])
def test_a_logger_that_lets_records_pass_later_is_noticed(change):
    heard = []

    class Counts(logging.Handler):
        def emit(self, record):
            heard.append(1)

    def calls(wrap):
        heard.clear()
        logger, handler = logging.getLogger(f"magpy.tests.{change}"), Counts()
        logger.propagate = False
        logger.handlers[:] = [handler]

        def shut(yes):
            if change == "level":
                logger.setLevel(logging.ERROR if yes else logging.DEBUG)
            elif change == "disabled":
                logger.setLevel(logging.DEBUG)
                logger.disabled = yes
            elif change == "handler":
                logger.setLevel(logging.DEBUG)
                handler.setLevel(logging.ERROR if yes else logging.DEBUG)
            else:
                logger.setLevel(logging.DEBUG)
                logging.disable(logging.WARNING if yes else logging.NOTSET)

        def f(x):
            logger.info("a")
            return x * len(heard)

        f, found = wrap(f), []
        shut(True)
        try:
            for i in range(6):
                if i == 3:
                    shut(False)
                found.append(f(torch.ones(1)).item())
        finally:
            logging.disable(logging.NOTSET)
            logger.handlers.clear()
        return found

    assert calls(lambda f: f) == [0, 0, 0, 1, 2, 3]
    assert calls(compiled) == [0, 0, 0, 1, 2, 3]


def test_own_dict_asks_no_property():
    class Own:
        @property
        def __dict__(self):
            raise RuntimeError

    v = Own()
    v.a = 1
    assert held.own_dict(v) == {"a": 1}
    assert held.own_dict(Own) is None
    assert held.own_dict(1) is None
    assert held.own_dict([]) is None


def test_referents_of_weak_references_and_proxies():
    v = Holder({})
    assert _interp.referent(weakref.ref(v)) is v
    assert _interp.referent(weakref.proxy(v)) is v
    dead = weakref.ref(Holder({}))
    assert _interp.referent(dead) is None
    assert _interp.referent(v) is None


def test_references_are_counted_right_where_objects_are_looked_into():
    v = Holder({})
    asked = [v, weakref.ref(v), weakref.proxy(v), Holder, 1, []]
    before = sys.getrefcount(v), sys.getrefcount(vars(v)), sys.getrefcount(None)
    for _ in range(1000):
        for a in asked:
            held.own_dict(a)
            _interp.referent(a)
    after = sys.getrefcount(v), sys.getrefcount(vars(v)), sys.getrefcount(None)
    assert all(abs(a - b) < 100 for a, b in zip(before, after, strict=True))


def test_slots_are_told_by_name():
    class Base:
        __slots__ = ("a", "b")

    class Derived(Base):
        __slots__ = ("c",)

    v = Derived()
    v.a, v.c = 1, 2
    assert held.slots(v) == {"a": 1, "b": _interp.ABSENT, "c": 2}
    assert held.slots(1) == {}


def test_hooks_of_a_node_of_a_function_of_the_programs():
    made = Double.apply(torch.ones(2, requires_grad=True))
    assert _tensor.node_hooks(made.grad_fn) == []

    def hook(*given):
        pass

    handle = made.grad_fn.register_hook(hook)
    made.register_hook(hook)
    assert _tensor.node_hooks(made.grad_fn) == [hook, hook]
    handle.remove()
    assert _tensor.node_hooks(made.grad_fn) == [hook]
