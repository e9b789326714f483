"""What a program reads beyond plain objects: the state of C objects, the process, classes, frames.

PYTEST_DONT_REWRITE: the programs must be what they look like.
"""

import abc
import array
import collections
import contextlib
import contextvars
import dataclasses
import datetime
import decimal
import gc
import hashlib
import io
import logging
import os
import queue
import random
import secrets
import signal
import sys
import tempfile
import threading
import time
import traceback
import tracemalloc
import types
import typing
import uuid
import warnings

import numpy as np
import torch

import magpy
from magpy.api import find
from tests.soundness.worlds import attempt, case, check_all

CASES = []
x = torch.arange(3.0)


def read(name, make):
    """A case: `make()` gives a function that reads, and changes between its calls."""

    def program(compile):
        f, *changes = make()
        f = compile(f)
        yield f(x)
        yield f(x)
        for change in changes:
            change()
            yield f(x)
            yield f(x)

    program.__name__ = name
    return case(CASES, refused=REFUSED.get(name))(program)


REFUSED = {
    "memory_view": "its type does not tell its content",
    "queue": "its type does not tell its content",
    "hash_object": "its type does not tell its content",
    "thread_local": "its type does not tell its content",
    "decimal_context": "Decimal is called",
}


def _context_variable():
    v = contextvars.ContextVar("v", default=1)
    return lambda t: (v.get(), t + v.get()), lambda: v.set(5), lambda: v.set(1)


def _decimal_context():
    def precision(n):
        decimal.getcontext().prec = n

    def f(t):
        return str(decimal.Decimal(1) / 3), t + 1

    return f, lambda: precision(5), lambda: precision(28)


def _array():
    a = array.array("d", [1.0, 2.0])
    return lambda t: (sum(a), t + a[0], a.tolist()), lambda: a.append(3.0), lambda: a.pop()


def _memory_view():
    b = bytearray(b"abc")
    view = memoryview(b)

    def change():
        b[0] = 120

    return lambda t: (view[0], bytes(view), t + 1), change


def _queue():
    q = queue.SimpleQueue()
    for i in range(6):
        q.put(i)
    return lambda t: (q.get(), q.qsize(), t + 1), lambda: q.put(7)


def _hash_object():
    h = hashlib.sha256(b"a")
    return lambda t: (h.hexdigest(), t + 1), lambda: h.update(b"b")


def _string_buffer():
    b = io.StringIO()
    return lambda t: (b.getvalue(), b.tell(), t + 1), lambda: b.write("a")


def _namespace():
    n = types.SimpleNamespace(a=1)

    def change():
        n.a = 2

    return lambda t: (repr(n), t + n.a), change


def _exception_object():
    e = ValueError("a")

    def change():
        e.args = ("b",)

    return lambda t: (str(e), repr(e), t + 1), change


def _collector():
    return lambda t: (gc.isenabled(), gc.get_threshold(), t + 1), gc.disable, gc.enable


def _recursion_limit():
    limit = sys.getrecursionlimit()
    return (
        lambda t: (sys.getrecursionlimit(), t + 1),
        lambda: sys.setrecursionlimit(limit + 100),
        lambda: sys.setrecursionlimit(limit),
    )


def _signal_handler():
    before = signal.getsignal(signal.SIGUSR1)
    return (
        lambda t: (signal.getsignal(signal.SIGUSR1), t + 1),
        lambda: signal.signal(signal.SIGUSR1, signal.SIG_IGN),
        lambda: signal.signal(signal.SIGUSR1, before),
    )


def _tracing_of_memory():
    return lambda t: (tracemalloc.is_tracing(), t + 1), tracemalloc.start, tracemalloc.stop


def _working_directory():
    here = os.getcwd()
    return (
        lambda t: (os.path.basename(os.getcwd()), t + 1),
        lambda: os.chdir("/"),
        lambda: os.chdir(here),
    )


def _file_system():
    path = os.path.join(tempfile.mkdtemp(), "a")
    return (
        lambda t: (os.path.exists(path), t + 1),
        lambda: open(path, "w").close(),
        lambda: os.remove(path),
    )


def _environment():
    def change(v):
        os.environ["MAGPY_TEST_WORLD"] = v

    return (
        lambda t: (os.environ.get("MAGPY_TEST_WORLD"), os.getenv("MAGPY_TEST_WORLD"), t + 1),
        lambda: change("a"),
        lambda: change("b"),
        lambda: os.environ.pop("MAGPY_TEST_WORLD", None),
    )


def _class_of_an_object():
    class A:
        pass

    class B(A):
        pass

    o = A()

    def become(c):
        o.__class__ = c

    def f(t):
        kind = "B" if isinstance(o, B) else "A"
        return type(o).__name__, o.__class__.__name__, isinstance(o, B), kind, t + 1

    return f, lambda: become(B), lambda: become(A)


def _bases():
    class A:
        pass

    class B:
        pass

    class C(A):
        pass

    c = C()

    def change(base):
        C.__bases__ = (base,)

    def f(t):
        return (
            issubclass(C, B),
            isinstance(c, B),
            [k.__name__ for k in C.__mro__],
            [k.__name__ for k in C.__bases__],
            t + 1,
        )

    return f, lambda: change(B), lambda: change(A)


def _name_of_a_class():
    class A:
        """First."""

    def change():
        A.__name__, A.__qualname__, A.__doc__ = "B", "b.B", "Second."

    return lambda t: (A.__name__, A.__qualname__, A.__doc__, t + 1), change


def _dict_of_a_class():
    class A:
        a = 1

    def change():
        A.a = 2

    def more():
        A.b = 3

    def f(t):
        return A.__dict__["a"], vars(A)["a"], "b" in A.__dict__, t + A.__dict__["a"]

    return f, change, more


def _virtual_subclass():
    class Base(abc.ABC):  # noqa: B024 - it only registers
        pass

    class A:
        pass

    a = A()
    return (
        lambda t: (isinstance(a, Base), issubclass(A, Base), t + 1),
        lambda: Base.register(A),
    )


def _seed_of_a_generator():
    # Every world has its own generator's state; what they share is what is asked of it.
    g = torch.Generator()
    g.manual_seed(1)
    return lambda t: (g.initial_seed(), t + 1), lambda: g.manual_seed(2), lambda: g.manual_seed(1)


def _thread_local():
    here = threading.local()
    here.v = 1

    def change():
        here.v = 2

    return lambda t: (here.v, t + here.v), change


for _name, _make in list(globals().items()):
    if isinstance(_make, types.FunctionType) and _name.startswith("_"):
        read(_name.strip("_"), _make)


@case(CASES)
def the_thread_is_read(compile):
    f = compile(lambda t: (threading.get_ident(), threading.current_thread().name, t + 1))
    results = []
    for _ in range(2):
        f(x)
        thread = threading.Thread(
            target=lambda: results.append((f(x)[:2], threading.get_ident())), name="other"
        )
        thread.start()
        thread.join()
    yield f(x)[0] == threading.get_ident(), f(x)[1]
    yield [((i, n), i == me) for (i, n), me in results if n != "other"], len(results)
    yield [i == me for (i, _), me in results]


@case(CASES, refused="its type does not tell its content")
def thread_locals_are_read_on_other_threads(compile):
    local = threading.local()
    local.v = 1

    def f(t):
        return getattr(local, "v", None), t + 1

    f = compile(f)
    results = []
    for _ in range(3):
        results.append(f(x))
        thread = threading.Thread(target=lambda: results.append(f(x)))
        thread.start()
        thread.join()
    yield results


@case(CASES, refused="a clock that gives an object is refused")
def clocks_go_on(compile):
    def f(t):
        return time.perf_counter(), datetime.datetime.now(), time.ctime(), t + 1

    f = compile(f)
    seen = [f(x)[:2] for _ in range(4)]
    yield len({s for s, _ in seen}), len({d for _, d in seen}), seen == sorted(seen)


@case(CASES)
def names_and_secrets_are_never_repeated(compile):
    makers = (
        lambda: uuid.uuid1().hex,
        lambda: uuid.uuid4().hex,
        lambda: secrets.token_hex(8),
        lambda: os.urandom(8),
        lambda: random.SystemRandom().random(),
    )
    for make in makers:
        f = compile(lambda t, make=make: (make(), t + 1))
        yield len({f(x)[0] for _ in range(4)})


@case(CASES, refused="class patterns look into objects")
def class_patterns_read_attributes(compile):
    @dataclasses.dataclass
    class Point:
        x: float
        y: float

    class Named:
        __match_args__ = ("name",)

        def __init__(self, name):
            self.name = name
            self.read = 0

        @property
        def size(self):
            self.read += 1
            return len(self.name)

    held = Point(1.0, x.clone())

    def f(t, command):
        match command:
            case Point(x=0, y=y):
                return t * y, "on the axis"
            case Point(a, b):
                return t * a + b
            case Named(size=3, name=n):
                return t - 1, n
            case Named(name):
                return t - 2, name, command.read
            case int(n) | float(n):
                return t * n
        match held:
            case Point(x=a, y=torch.Tensor() as b):
                return t * a + b
            case Point(z=_):
                return "never"
        return t

    f = compile(f)
    for _ in range(2):
        for command in (
            Point(0, 3),
            Point(1, 3),
            Point(0, 4),
            Named("abc"),
            Named("abd"),
            Named("a"),
        ):
            yield f(x, command), vars(command)
        yield f(x, 3), f(x, 2.5), f(x, None), f(x, None)
        held.y.add_(1)
        held.x += 1
        yield f(x, None)
        held.y = 2.0
        yield f(x, None)
        held.z = 1
        yield f(x, None)
        del held.z
        held.y = x.clone()


@case(CASES)
def generators_are_arguments(compile):
    def augmented(t, rng):
        if rng.random() < 0.5:
            t = t.flip(0)
        return t * rng.random(), rng.choice([1, 2, 3])

    def mixed(t, a, b):
        return t * a.random() + b["rng"].random()

    augmented, mixed = compile(augmented), compile(mixed)
    for make in (random.Random, np.random.default_rng, np.random.RandomState):
        for seed in range(6):
            rng = make(seed)
            yield augmented(x, rng), rng.random()
    for seed in range(6):
        a, b = random.Random(seed), random.Random(seed + 1)
        b = a if seed in (0, 4) else b
        yield mixed(x, a, {"rng": b}), a.random(), b.random()


@case(CASES)
def the_collector_is_switched(compile):
    def f(t, on):
        if on:
            gc.enable()
        else:
            gc.disable()
        return gc.isenabled(), t + 1

    f = compile(f)
    for on in (False, False, True, True, False, False):
        yield f(x, on), gc.isenabled()
    gc.enable()
    yield f(x, True), gc.isenabled()


@case(CASES)
def the_environment_is_written(compile):
    def f(t, v):
        os.environ["MAGPY_TEST_WORLD"] = v
        return t + 1

    f = compile(f)
    for v in ("a", "a", "b", "b"):
        yield f(x, v), os.environ["MAGPY_TEST_WORLD"], os.popen("echo $MAGPY_TEST_WORLD").read()
    os.environ.pop("MAGPY_TEST_WORLD", None)


@case(CASES, refused="the caller differs from call to call")
def a_caller_is_looked_at(compile):
    def f(t):
        return sys._getframe(1).f_code.co_name, sys._getframe().f_code.co_name, t + 1

    def g(t):
        frame = sys._getframe()
        return frame.f_back.f_code.co_name, t + 1

    f, g = compile(f), compile(g)

    def one():
        return f(x), g(x)

    def other():
        return f(x), g(x)

    for call in (one, one, other, one, other):
        yield call()


@case(CASES)
def frames_within_the_call_are_looked_at(compile):
    def inner():
        return sys._getframe(1).f_code.co_name, sys._getframe().f_back.f_lineno > 0

    def f(t):
        return inner(), t + 1

    f = compile(f)
    for _ in range(3):
        yield f(x)


@case(CASES, refused="Python of the program that nobody watches there")
def warnings_name_the_caller(compile):
    def inner():
        warnings.warn("about f", stacklevel=2)
        warnings.warn("about the caller again", DeprecationWarning, 3)

    def f(t):
        warnings.warn("about the caller", stacklevel=2)
        warnings.warn(UserWarning("about itself"), stacklevel=1)
        inner()
        return t + 1

    f = compile(f)

    def one():
        return f(x)

    def other():
        return f(x)

    for call in (one, one, other, one):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield (
                call(),
                [
                    (w.category.__name__, str(w.message), w.filename, w.lineno)
                    for w in caught
                    if w.category is not magpy.MagpyWarning
                ],
            )


@case(CASES, refused="Python of the program that nobody watches there")
def warnings_are_ignored_for_a_while(compile):
    shown = []

    def f(t):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.warn("hidden", stacklevel=1)
        warnings.warn("seen", stacklevel=1)
        return t + 1

    f = compile(f)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda m, *a: (
            None if isinstance(m, magpy.MagpyWarning) else shown.append(str(m))
        )
        for _ in range(4):
            f(x)
    yield shown


@case(CASES, refused="the call changes what becomes of warnings")
def warnings_are_recorded(compile):
    def f(t):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warnings.warn("kept", stacklevel=1)
        return t + 1, [str(w.message) for w in caught]

    f = compile(f)
    for _ in range(4):
        yield f(x)


@case(CASES, refused="the call replaces sys.stdout")
def output_is_redirected(compile):
    outside = io.StringIO()

    def f(t):
        inside = io.StringIO()
        with contextlib.redirect_stdout(inside):
            print("to inside")
        with contextlib.redirect_stdout(outside):
            print("to outside")
        return t + 1, inside.getvalue()

    f = compile(f)
    for _ in range(4):
        yield f(x), outside.getvalue()


@case(CASES, refused="Python of the program that nobody watches there")
def records_name_their_place(compile):
    records = []

    class Keep(logging.Handler):
        def emit(self, record):
            records.append((record.getMessage(), record.funcName, record.lineno, record.pathname))

    log = logging.Logger("world")
    log.addHandler(Keep())

    def inner(k):
        log.warning("inner %d", k)

    def f(t, k):
        inner(k)
        log.error("outer")
        return t + 1

    f = compile(f)
    for k in (1, 1, 2, 2):
        yield f(x, k), list(records)


@case(CASES, refused="a thread is started")
def threads_are_started(compile):
    def f(t):
        out = []
        thread = threading.Thread(target=lambda: out.append(t * 2))
        thread.start()
        thread.join()
        return out[0] + 1

    f = compile(f)
    for k in range(3):
        yield f(x + k)


@case(CASES, refused="an array from outside is changed")
def an_array_changes_within_the_call(compile):
    a = array.array("d", [1.0, 2.0])

    def f(t):
        before = sum(a)
        a[0] = a[0] + 1
        return t + before, a[0]

    def blind(t):
        a.append(3.0)
        return t + len(a)

    f, blind = compile(f), compile(blind)
    for _ in range(3):
        yield f(x), blind(x), a.tolist()


@case(CASES)
def a_list_in_a_context_variable_grows(compile):
    seen = contextvars.ContextVar("seen", default=None)

    def f(t):
        found = seen.get()
        if found is None:
            seen.set([t])
            return 0
        found.append(t)
        return len(found)

    def go():
        g = compile(f)
        return [(g(x), len(seen.get())) for _ in range(4)]

    yield contextvars.copy_context().run(go)


@case(CASES, refused="Context.run is called")
def a_context_from_outside_is_entered(compile):
    value = contextvars.ContextVar("value", default=1.0)
    context = contextvars.copy_context()

    def within(t):
        value.set(value.get() + 1)
        return t * value.get()

    g = compile(lambda t: context.run(within, t))
    for step in range(4):
        if step == 2:
            context.run(value.set, 9.0)
        yield g(x), context.get(value), value.get()


@case(CASES)
def an_objects_class_is_set_within_the_call(compile):
    class A:
        pass

    class B(A):
        def g(self):
            return 2

    o = A()

    def f(t):
        if isinstance(o, B):
            return t * o.g()
        o.__class__ = B
        return t

    f = compile(f)
    for reset in (False, False, False, True, False, True):
        if reset:
            o.__class__ = A
        yield f(x), type(o) is B


@case(CASES)
def the_bases_of_a_class_are_assigned(compile):
    class A:
        k = 1

    class B:
        k = 5

    class C(A):
        pass

    def f(t):
        return t * super(C, C()).k, isinstance(C(), B)

    f = compile(f)
    for bases in ((A,), (A,), (B,), (A,), (B,)):
        C.__bases__ = bases
        yield f(x)


def _callers():
    """Names of the functions that run, the innermost first, up to the program's `f`."""
    names, frame = [], sys._getframe(1)
    while frame.f_code.co_name != "f":
        names.append(f"{frame.f_globals['__name__']}:{frame.f_code.co_name}")
        frame = frame.f_back
    return names


def _below_handlers(f):
    """What a function gives where its caller handles an exception, or none."""
    for error in (None, KeyError, ValueError, None, KeyError):
        if error is None:
            yield attempt(f, x)
            continue
        try:
            raise error
        except error:
            yield attempt(f, x)


@case(CASES, refused="the exception that the caller handles is looked at")
def exceptions_that_the_caller_handles(compile):
    def asked(t):
        return t + 1, sys.exc_info()[0]

    def raised(t):
        if t is not None:
            raise  # noqa: PLE0704 - what the caller handles

    def after_its_own(t):
        with contextlib.suppress(KeyError):
            {}[0]
        return t + 1, repr(sys.exc_info()[1])

    def in_its_own(t):
        try:
            raise IndexError
        except IndexError:
            return t + 1, traceback.format_exc().count("During handling"), sys.exc_info()[0]

    for f in (asked, raised, after_its_own, in_its_own):
        yield from _below_handlers(compile(f))


@case(CASES)
def exceptions_of_the_call_below_a_handler(compile):
    def f(t):
        try:
            try:
                raise IndexError
            except IndexError:
                raise
        except IndexError:
            return t + 1, sys.exc_info()[0]

    yield from _below_handlers(compile(f))


@case(CASES, refused="a class is made")
def callers_of_what_c_functions_call_back(compile):
    seen = []

    class Root(abc.ABC):  # noqa: B024 - only asked
        pass

    class Base(Root):
        @classmethod
        def __subclasshook__(cls, other):
            seen.append(_callers())
            return NotImplemented

    def f(t):
        class Own:
            pass

        return t + 1, isinstance(Own(), Root)

    f = compile(f)
    for _ in range(3):
        yield f(x), seen


@case(CASES, refused="a hook of a protocol reads what its class registers")
def protocols_ask_who_calls_them(compile):
    """`typing` lets a class that is no runtime protocol be asked by `abc` only."""

    class Sized(collections.abc.Sized, typing.Protocol):
        def other(self): ...

    def f(t, v):
        return t + 1, isinstance(v, collections.abc.Sized)

    f = compile(f)
    for _ in range(2):

        class Own:
            pass

        for _ in range(3):
            yield f(x, Own())


@case(CASES, refused="once the callback looks past the call")
def a_callback_looks_at_frames(compile):
    state = {"f": lambda: sys._getframe(1).f_code.co_name}
    f = compile(lambda t: (state["f"](), t + 1))
    for _ in range(2):
        yield f(x)
    state["f"] = lambda: sys._getframe(2).f_code.co_name
    for _ in range(2):
        yield f(x)


@case(CASES, refused="a class is made")
def a_cell_is_shared_with_what_is_returned(compile):
    kept = []

    def f(t):
        def add(v):
            kept.append(v)
            return len(kept)

        class K:
            def m(self):
                return add(1)

        return t + K().m(), add, lambda: kept

    f = compile(f)
    for _ in range(3):
        y, add, get = f(x)
        yield y, add(2), get() is kept, list(kept)


test_world = check_all(CASES)


def test_a_linear_layer_is_guarded_without_python():
    layer = torch.nn.Linear(3, 3)
    compiled = magpy.compile(layer, backend="eager")
    compiled(x), compiled(x)
    (entry,) = find(compiled)._magpy_entries
    assert not [check for check in entry.tag.program.checks if check[0] == "py"]


def test_a_call_that_is_redone_is_redone_once():
    limit = sys.getrecursionlimit()
    compiled = magpy.compile(
        lambda t: t + sum(sys.getrecursionlimit() for _ in range(9)), backend="eager"
    )
    compiled(x), compiled(x)
    (entry,) = find(compiled)._magpy_entries
    assert len(entry.tag.program.anchors["redo"]) == 1
    try:
        sys.setrecursionlimit(limit + 1)
        assert torch.equal(compiled(x), x + 9 * (limit + 1))
    finally:
        sys.setrecursionlimit(limit)
    assert torch.equal(compiled(x), x + 9 * limit)
