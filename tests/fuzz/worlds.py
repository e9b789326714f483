"""Runs one program in two worlds, eager and compiled, and finds the first difference.

Owns: what a program is, and what of a world can be seen. Does not own: where programs come from
(`grammar.py`), their shortening (`shrink.py`), processes (`__main__.py`). A program is the text of
a module with a callable `target` and a generator function `steps(f)`, which calls `f` (the target,
or the compiled target), changes its world, and yields whenever the worlds are to be compared.
"""

from __future__ import annotations

import array
import collections
import contextlib
import copy
import dataclasses
import functools
import io
import itertools
import linecache
import random
import re
import sys
import threading
import traceback
import types
import typing
import warnings
import weakref

import numpy as np
import torch
from torch.utils.hooks import RemovableHandle

import magpy
from magpy import _interp

FILE = "<fuzz>"


class Finding(typing.NamedTuple):
    """What is wrong with a program: the kind, at which step, and the difference in words."""

    kind: str
    step: int
    text: str


@dataclasses.dataclass
class Report:
    """What came of one program.

    Attributes:
        varies: it is not even like itself.
        late: it was left at a step in which an operation raises for its data after a change.
        drivers: how many of the compiled callables ran in part (magpy/runtime/driver.py).
    """

    finding: Finding | None = None
    varies: bool = False
    late: bool = False
    steps: int = 0
    captures: int = 0
    hits: int = 0
    calls: int = 0
    reasons: tuple[str, ...] = ()
    drivers: int = 0


def attempt(f, *args, **kwargs):
    """The result, or the exception, whose frames keep nothing alive.

    docs/semantics.md assumes that nobody reads their locals. Kept locals also keep autograd nodes,
    and a leaf remembers its shape of before a new `.data` for as long as its node lives.
    """
    try:
        return f(*args, **kwargs)
    except Exception as error:
        traceback.clear_frames(error.__traceback__)
        return error


def tensors_in(value, found=None):
    """The tensors in a result, in order."""
    found = [] if found is None else found
    if isinstance(value, torch.Tensor):
        found.append(value)
    elif isinstance(value, (list, tuple)):
        for x in value:
            tensors_in(x, found)
    elif isinstance(value, dict):
        for x in value.values():
            tensors_in(x, found)
    return found


def backward(value):
    """Runs the autograd engine from every tensor of a result; gradients appear at the leaves."""
    total = None
    for t in tensors_in(value):
        if t.requires_grad and t.is_floating_point():
            total = t.sum() if total is None else total + t.sum()
    if total is None:
        return None
    return attempt(total.backward)


def poke(value):
    """Changes a result in place, as its owner may: no entry may notice."""
    with torch.no_grad():
        for t in tensors_in(value):
            if t.is_floating_point():
                attempt(t.add_, 1)
    if type(value) is list:
        value.append("poked")
    elif type(value) is dict:
        value["poked"] = True


def in_thread(f, *args, **kwargs):
    """`attempt` in a thread of its own."""
    results = []
    thread = threading.Thread(target=lambda: results.append(attempt(f, *args, **kwargs)))
    thread.start()
    thread.join()
    return results[0]


def drive(value):
    """The result of a coroutine, run by hand; anything else as it is."""
    if not isinstance(value, types.CoroutineType):
        return value
    try:
        while True:
            value.send(None)
    except StopIteration as end:
        return end.value


# ---------------------------------------------------------------- what can be seen

_ATOMS = frozenset({type(None), bool, int, str, bytes, type(...), range, torch.dtype, torch.device})
_BY_REPR = frozenset({float, complex, slice})
_PLAIN_ITERATORS = tuple(type(iter(x)) for x in ([], (), range(0), "", b""))
_ITERATORS = (
    *_PLAIN_ITERATORS,
    *(type(iter(x)) for x in ({}, {}.values(), {}.items(), set())),
    enumerate,
    zip,
    map,
    filter,
    reversed,
    itertools.count,
    itertools.cycle,
    itertools.chain,
)


class Picture:
    """A world as a flat list of words without addresses; `paths` names each.

    A path is a chain of (path, step), made into text only for a difference.
    """

    def __init__(self, value, keep=None):
        self.words = []
        self.paths = []
        self._seen = {}
        self._storages = {}
        self._handles = {}
        self._keep = [] if keep is None else keep  # no address may be used again
        with torch._C.DisableTorchFunctionSubclass():
            self._add(value, None)
        del self._seen, self._storages, self._handles, self._keep

    def _word(self, word, path):
        self.words.append(word)
        self.paths.append(path)

    def _add(self, v, path):
        t = type(v)
        if t in _ATOMS:
            self._word((t, v), path)
            return
        if t in _BY_REPR:
            self._word((t, repr(v)), path)
            return
        if t is tuple or t is torch.Size:
            self._word((t, len(v)), path)
            for i, x in enumerate(v):
                self._add(x, (path, i))
            return
        picture = _PICTURES.get(t)
        if picture is None:
            if isinstance(v, np.generic) and not isinstance(v, np.void):
                self._scalar(v, path)  # a number: which object it is does not matter
                return
            if isinstance(v, (type, types.ModuleType)):
                self._word(("named", getattr(v, "__qualname__", None) or v.__name__), path)
                return
            picture = _picture_of(v)
        elif t is types.BuiltinFunctionType:
            self._word(("named", v.__qualname__), path)
            if type(v.__self__) not in (types.ModuleType, type(None)):
                self._add(v.__self__, (path, "__self__"))
            return
        elif t is _interp.Compiled:
            v, t = v._magpy_wrapped, types.FunctionType
            picture = _picture_of(v)
        key = id(v)
        number = self._seen.get(key)
        if number is not None:
            self._word(("seen", number), path)
            return
        self._seen[key] = len(self._seen)
        self._keep.append(v)
        self._word(("new", t.__name__), path)
        picture(self, v, path)

    def _tensor(self, v, path):
        storage = v.untyped_storage()
        number = self._storages.setdefault(storage._cdata, len(self._storages))
        self._keep.append(storage)
        d = v.detach()
        strides = d.stride()
        if backend != "eager":
            # A compiler may take any number for a stride that leads nowhere.
            strides = tuple(s for s, n in zip(strides, d.shape, strict=True) if n > 1 and d.numel())
        self._word((d.dtype, tuple(d.shape), strides, d.storage_offset()), path)
        if d.numel():
            last = sum((n - 1) * s for n, s in zip(d.shape, d.stride(), strict=True))
            if (d.storage_offset() + last + 1) * d.element_size() > storage.nbytes():
                # Torch resizes it before it finds that its memory cannot grow.
                raise ValueError("a tensor is larger than its memory: what it shows is anything")
        try:
            function = v.grad_fn
            name = function.name() if function is not None else None
            if name is not None and backend != "eager":
                name = "a function"  # a compiler makes one for its whole graph
            leaf = v.is_leaf
        except RuntimeError as error:
            # A view whose base was changed in a way that autograd forbids.
            # (A compiler counts changes through `.data`, which eager does not.)
            name, leaf = str(error)[:60] if backend == "eager" else "a function", False
        flags = v.requires_grad, leaf, name, v.is_inference(), v.is_conj(), v.is_neg()
        self._word(("autograd", *flags), path)
        try:
            data = d.numpy().tobytes()
        except (RuntimeError, TypeError):  # not a type of numpy's, or a lazy conjugate
            plain = d.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
            data = plain.reshape(-1).view(torch.uint8).numpy().tobytes()
        self._word(("data", number, data), path)
        if leaf and v.grad is not None:
            self._add(v.grad, (path, "grad"))
        own = v.__dict__
        if own:
            self._attributes(own, path)

    def _exception(self, v, path):
        if isinstance(v, RecursionError):
            return  # where the stack ends is not the program's choice
        lines = []
        tb = v.__traceback__
        while tb is not None:
            code = tb.tb_frame.f_code
            if code.co_filename == FILE:
                lines.append((code.co_name, tb.tb_lineno))
            tb = tb.tb_next
        if isinstance(v, UnboundLocalError) and lines:
            # Code that ran often enough has STORE_FAST__LOAD_FAST (CPython 3.11), which raises it
            # at the line of the store.
            lines[-1] = lines[-1][:1]
        self._word(("raised", str(v), tuple(lines)), path)
        self._word(("context", type(v.__context__).__name__, type(v.__cause__).__name__), path)

    def _array(self, v, path):
        self._word(("array", str(v.dtype), v.shape, v.strides, v.tobytes()), path)

    def _scalar(self, v, path):
        self._word((type(v).__name__, str(v.dtype), v.tobytes()), path)

    def _method(self, v, path):
        self._add(v.__func__, (path, "__func__"))
        self._add(v.__self__, (path, "__self__"))

    def _dict(self, v, path):
        self._word(("keys", len(v)), path)
        hooks = path is not None and "_hooks" in str(path[1])
        for k, x in dict.items(v):
            self._add(self._handle_number(k) if hooks else k, (path, "key"))
            self._add(x, (path, k))
        self._object(v, path)

    def _handle_number(self, number):
        """Compilers make handles of hooks, too: the numbers of the next ones are not eager's."""
        if backend == "eager" or type(number) is not int:
            return number
        return self._handles.setdefault(number, len(self._handles))

    def _handle(self, v, path):
        self._word(("handle", self._handle_number(v.id)), path)

    def _plain_dict(self, v, path):
        # A class made in a call dies when the collector comes, and with it what is noted of it.
        items = [x for x in list(v.items()) if not _of_class(x[0])]
        self._word(("keys", len(items)), path)
        for k, x in items:
            if type(k) is str:
                self._word(k, path)
            else:
                self._add(k, (path, "key"))
            self._add(x, (path, k))

    def _set(self, v, path):
        words = sorted(repr(x) if type(x) in _ATOMS else type(x).__name__ for x in set.__iter__(v))
        self._word(("set", tuple(words)), path)
        self._object(v, path)

    def _frozenset(self, v, path):
        self._word(("set", tuple(sorted(map(repr, frozenset.__iter__(v))))), path)

    def _sequence(self, v, path):
        self._word(("len", len(v), getattr(v, "maxlen", None)), path)
        walk = list.__iter__ if isinstance(v, list) else type(v).__iter__
        for i, x in enumerate(walk(v)):
            self._add(x, (path, i))
        self._object(v, path)

    def _list(self, v, path):
        self._word(len(v), path)
        for i, x in enumerate(v):
            self._add(x, (path, i))

    def _text(self, v, path):
        self._word(("text", v.getvalue()), path)

    def _bytes(self, v, path):
        self._word(("bytes", bytes(v)), path)

    def _cell(self, v, path):
        try:
            content = v.cell_contents
        except ValueError:
            self._word("empty", path)
        else:
            self._add(content, path)

    def _object(self, v, path):
        for name in getattr(type(v), "__slots__", ()):
            try:
                value = object.__getattribute__(v, name)
            except AttributeError:
                continue
            self._add(value, (path, name))
        try:
            own = object.__getattribute__(v, "__dict__")
        except AttributeError:
            return
        if own:
            self._attributes(own, path)

    def _attributes(self, own, path):
        self._word(("attributes", len(own)), path)
        for k, x in own.items():
            self._word(k, path)
            self._add(x, (path, k))

    def _function(self, v, path):
        code = v.__code__
        names = [name for name in code.co_freevars if name != ".call"]
        if magpy.config.regions and code.co_name == "<lambda>":
            # docs/semantics.md assumes that nobody looks at its code, where a line of it is left to
            # Python.
            code = code.co_firstlineno, code.co_varnames, code.co_names, *names
        self._word(("function", v.__qualname__, code), path)
        if v.__defaults__ or v.__kwdefaults__:
            self._add(v.__defaults__, (path, "__defaults__"))
            self._add(v.__kwdefaults__, (path, "__kwdefaults__"))
        for name, cell in zip(v.__code__.co_freevars, v.__closure__ or (), strict=True):
            if name not in names:
                continue
            if magpy.config.regions:
                # docs/semantics.md assumes that nobody asks whether functions share the cell of
                # a variable that is assigned once; where it matters, the contents will differ.
                self._cell(cell, (path, name))
            else:
                self._add(cell, (path, name))
        if v.__dict__:
            self._attributes(v.__dict__, path)

    def _partial(self, v, path):
        self._add((v.func, v.args, v.keywords), path)
        self._object(v, path)

    def _cache(self, v, path):
        self._word(("cache", *v.cache_info()[2:]), path)  # hits are not counted
        self._object(v, path)

    def _iterator(self, v, path):
        """What is left of it, without using it up."""
        try:
            if type(v) in _PLAIN_ITERATORS:
                self._add(tuple(copy.copy(v)), path)
            else:
                self._add(v.__reduce__()[1:], path)
        except (TypeError, RuntimeError):
            return  # over something that cannot say it, or that has changed

    def _generator(self, v, path):
        frame = v.gi_frame
        if frame is None:
            self._word("over", path)
            return
        self._word(("suspended", v.__qualname__, frame.f_lineno), path)
        # A driver's frame has variables of its own, whose names are none of a program's.
        own = {n: x for n, x in frame.f_locals.items() if n[0] != "." or n == ".0"}
        self._attributes(own, path)

    def _coroutine(self, v, path):
        frame = v.cr_frame
        self._word((v.__qualname__, frame is not None and frame.f_lineno), path)

    def _generator_state(self, v, path):
        self._word(("state", v.get_state().numpy().tobytes()), path)

    def _random(self, v, path):
        self._word(("state", v.getstate()), path)

    def _numpy_random(self, v, path):
        self._word(("state", str(v.bit_generator.state)), path)

    def _weak(self, v, path):
        """When an object dies is not compared: an entry may keep it for a while."""

    def _proxy(self, v, path):
        self._add(dict(v), path)


_PICTURES = {
    torch.Tensor: Picture._tensor,
    torch.nn.Parameter: Picture._tensor,
    dict: Picture._plain_dict,
    list: Picture._list,
    set: Picture._set,
    frozenset: Picture._frozenset,
    types.FunctionType: Picture._function,
    types.MethodType: Picture._method,
    types.CellType: Picture._cell,
    types.BuiltinFunctionType: None,
    types.GeneratorType: Picture._generator,
    types.CoroutineType: Picture._coroutine,
    types.MappingProxyType: Picture._proxy,
    functools._lru_cache_wrapper: Picture._cache,
    io.StringIO: Picture._text,
    bytearray: Picture._bytes,
    array.array: Picture._sequence,
    weakref.ref: Picture._weak,
    _interp.Compiled: Picture._object,
    RemovableHandle: Picture._handle,
    torch.Generator: Picture._generator_state,
    random.Random: Picture._random,
    np.random.Generator: Picture._numpy_random,
    **dict.fromkeys(_ITERATORS, Picture._iterator),
}
_PICTURES[types.BuiltinFunctionType] = Picture._object
_BASES = (
    (torch.Tensor, Picture._tensor),
    (BaseException, Picture._exception),
    (types.FunctionType, Picture._function),
    (types.MethodType, Picture._method),
    (np.ndarray, Picture._array),
    (np.generic, Picture._scalar),
    (dict, Picture._dict),
    ((list, tuple, collections.deque), Picture._sequence),
    (set, Picture._set),
    (functools.partial, Picture._partial),
    (io.StringIO, Picture._text),
)


def _of_class(key):
    return isinstance(key, weakref.ref) and isinstance(key(), (type, type(None)))


def _picture_of(v):
    for base, picture in _BASES:
        if isinstance(v, base):
            return picture
    return Picture._object


def _path_text(path):
    steps = []
    while path is not None:
        path, step = path
        steps.append(f"[{step!r:.20}]")
    return "".join(reversed(steps))


# ---------------------------------------------------------------- a world

# Not seen by the comparison: the same in both worlds, or private to one.
_HIDDEN = {"__builtins__", "__warningregistry__", "steps", "target", "also"}
_CLASS_NOISE = {
    "__module__",
    "__dict__",
    "__weakref__",
    "__doc__",
    "__firstlineno__",
    "__static_attributes__",
    "__slotnames__",
}
_MACHINERY = (
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    property,
    staticmethod,
    classmethod,
)
_KEPT = 3


def describe_class(cls):
    """What of a class can change."""
    made = dataclasses.is_dataclass(cls) or hasattr(cls, "_fields")
    return {
        n: x
        for n, x in vars(cls).items()
        if n not in _CLASS_NOISE and not (made and n[:1] == "_") and not isinstance(x, _MACHINERY)
    }


def use(value, depth=3):
    """What comes of using a result up: coroutines and iterators run, functions called."""
    if isinstance(value, types.CoroutineType):
        return attempt(drive, value)
    if isinstance(value, (types.FunctionType, functools.partial)):
        return attempt(value)
    if isinstance(value, (types.GeneratorType, *_ITERATORS)):
        return attempt(lambda: list(itertools.islice(value, 5)))
    if isinstance(value, (list, tuple)) and depth:
        return [use(x, depth - 1) for x in value]
    return value


class Notice(UserWarning):
    """What programs warn with; of other warnings only those of numpy's arithmetic are shown."""


#: How these begin: not those of numpy's own Python, which docs/semantics.md leaves no place.
_ARITHMETIC = "(divide by zero|overflow|underflow|invalid value) encountered in"


_HELPERS = {
    "attempt": attempt,
    "backward": backward,
    "poke": poke,
    "in_thread": in_thread,
    "drive": drive,
    "use": use,
    "Notice": Notice,
}


def _shown_in(stdout):
    """What shows warnings as text, and reaches nothing else of a world."""

    def warned(message, category, filename, lineno, file=None, line=None):
        if category is Notice or category is RuntimeWarning:
            stdout.write(f"warning in line {lineno}: {message}\n")

    return warned


class World:
    """One run of a program."""

    def __init__(self, code, wrap, seed, keep=None):
        self.stdout = io.StringIO()
        self.shown = _shown_in(self.stdout)
        self.kept = []
        self._keep = keep
        # `also` compiles a function of the program as its target is compiled.
        self.namespace = {"__name__": "fuzz_world", **_HELPERS, "also": wrap}
        torch.default_generator.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed & 0xFFFFFFFF)
        RemovableHandle.next_id = 0
        with self.here():
            exec(code, self.namespace)
            self.compiled = wrap(self.namespace["target"])
            self.generator = self.namespace["steps"](self.compiled)

    @contextlib.contextmanager
    def here(self):
        """What is printed and warned inside is this world's."""
        stdout, sys.stdout = sys.stdout, self.stdout
        shown, warnings.showwarning = warnings.showwarning, self.shown
        try:
            yield
        finally:
            sys.stdout, warnings.showwarning = stdout, shown

    def step(self):
        """Goes on to the next yield; False at the end."""
        try:
            with self.here():
                self.kept.append(next(self.generator))
        except StopIteration:
            return False
        except Exception as error:
            self.kept.append(error)  # and there is no further step
        del self.kept[:-_KEPT]
        return True

    def printed(self):
        """What the program has printed; a compiler's functions have names of their own."""
        text = self.stdout.getvalue()
        return text if backend == "eager" else re.sub(r"grad_fn=<\w+>", "grad_fn=<...>", text)

    def seen(self):
        """A picture of all that the outside can see now."""
        visible, classes = {}, {}
        for n, x in self.namespace.items():
            if n in _HIDDEN or n in _HELPERS or isinstance(x, types.ModuleType):
                continue
            if isinstance(x, type):
                if x.__module__ == "fuzz_world":
                    classes[n] = describe_class(x)
            else:
                visible[n] = x
        state = np.random.get_state()
        return Picture(
            {
                "result": self.kept[-1] if self.kept else None,
                "earlier": self.kept[:-1],
                "outside": visible,
                "classes": classes,
                "printed": self.printed(),
                "rng": (
                    hash(torch.default_generator.get_state().numpy().tobytes()),
                    hash(random.getstate()),
                    hash(state[1].tobytes()),
                    state[2],
                ),
                "modes": (
                    torch.is_grad_enabled(),
                    torch.is_inference_mode_enabled(),
                    torch.is_autocast_enabled("cpu"),
                    torch.get_default_dtype(),
                ),
            },
            self._keep,
        )


@contextlib.contextmanager
def _modes_restored():
    """Nothing that a program does to the interpreter or to torch outlives it."""
    dtype, grad = torch.get_default_dtype(), torch.is_grad_enabled()
    autocast, handle = torch.is_autocast_enabled("cpu"), RemovableHandle.next_id
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("default", Notice)
            warnings.filterwarnings("default", _ARITHMETIC, RuntimeWarning)
            yield
    finally:
        torch.set_default_dtype(dtype)
        torch.set_grad_enabled(grad)
        torch.set_autocast_enabled("cpu", autocast)
        RemovableHandle.next_id = max(handle, RemovableHandle.next_id)


def first_difference(a, b):
    """The first difference of two pictures in words, or None."""
    if a.words == b.words:
        return None
    for x, y, p, q in zip(a.words, b.words, a.paths, b.paths, strict=False):
        if x != y:
            p, q = _path_text(p), _path_text(q)
            return f"{p if p == q else f'{p} / {q}'}: {_short(x)} instead of {_short(y)}"
    return f"{len(a.words)} words instead of {len(b.words)}"


def raises_late(found, wanted, before):
    """Whether a step is other than eager as one may be in which an operation raises late.

    docs/semantics.md assumes that no operation raises for its data in a call that has changed a
    tensor, or drawn a number, ahead of it; if one does, the exception is eager's without the
    program's line, the random numbers are eager's, and changes of Python's objects are missing.

    Args:
        found, wanted: the pictures after the step, the second one of the eager world.
        before: the eager world's picture ahead of the step.
    """
    x, y = next(pair for pair in zip(found.words, wanted.words, strict=False) if pair[0] != pair[1])
    if not (isinstance(x, tuple) and isinstance(y, tuple) and x[:1] == y[:1] == ("raised",)):
        return False
    if x[:2] != y[:2] or x[2] != () or y[2] == ():
        return False
    drawn = _words(found, ["['rng']"]) == _words(wanted, ["['rng']"])
    changed = _words(before, ["['outside']", "['rng']"]) != _words(
        wanted, ["['outside']", "['rng']"]
    )
    return drawn and changed


def _words(picture, places):
    """What a picture shows of some places."""
    pairs = zip(picture.words, picture.paths, strict=True)
    return [w for w, p in pairs if _path_text(p).startswith(tuple(places))]


def _short(word):
    if isinstance(word, tuple) and word[0] == "data":
        raw = word[2]
        if len(raw) % 4 == 0 and len(raw) <= 64:
            return f"data {np.frombuffer(raw, np.float32).tolist()} of storage {word[1]}"
    return f"{word!r:.300}"


@functools.lru_cache(maxsize=8)
def compiled_source(source):
    """The code of a program's module."""
    return compile(source, FILE, "exec", dont_inherit=True)


#: The backend of compiled targets.  "aot_eager" runs what AOTAutograd makes of a graph.
backend = "eager"
# A compiler may say that it cannot take a graph, such as one whose backward pass fails; "eager"
# takes all.
_FAILURES = {True: ("magpy failed", "the backend"), False: ("magpy failed",)}


def _below(frames, f):
    """Calls `f` where the stack is so many frames deeper."""
    return f() if frames == 0 else _below(frames - 1, f)


def run(source, seed=0, wrap=None, limit=64, immortal=False, frames=0, looked_at=False):
    """Runs a program in both worlds, one after the other.

    Args:
        wrap: what makes the compiled target; `magpy.compile` with `backend` if None.
        limit: steps after which the program is left.
        immortal: whether all that can be seen before and after a step lives on in both worlds.
        looked_at: whether all is looked at ahead of the first step, too, which gives a dict to
            partials that have none.
        frames: by how many frames the steps of the other world lie deeper in the stack.
    """
    report = Report()
    code = compiled_source(source)
    # A driver is made of the function's source.
    linecache.cache[FILE] = (len(source), None, source.splitlines(keepends=True), FILE)
    made = []

    def compile_target(target):
        made.append(magpy.compile(target, backend=backend))
        return made[-1]

    with _modes_restored():
        eager = World(code, lambda f: f, seed, [] if immortal else None)
        if looked_at:
            eager.seen()
        wanted = []
        while len(wanted) < limit and eager.step():
            wanted.append(eager.seen())
    with _modes_restored():
        other = World(code, wrap or compile_target, seed, [] if immortal else None)
        if looked_at:
            other.seen()
        while report.steps < limit:
            more = _below(frames, other.step)
            if more != (report.steps < len(wanted)):
                report.finding = Finding("differs", report.steps, "the number of steps")
                break
            if not more:
                break
            seen = other.seen()
            found = first_difference(seen, wanted[report.steps])
            if found is not None:
                before = wanted[report.steps - 1] if report.steps else None
                late = before is not None and raises_late(seen, wanted[report.steps], before)
                report.finding = None if late else Finding("differs", report.steps, found)
                report.late = late
                break
            report.steps += 1
    for c in made:
        stats = magpy.stats(c)
        report.captures += stats.captures
        report.hits += stats.hits
        report.calls += stats.hits + stats.misses
        report.reasons += tuple(stats.reasons)
        report.drivers += bool(stats.regions)
        failures = [r for r in stats.reasons if r.startswith(_FAILURES[backend == "eager"])]
        if failures and report.finding is None:
            report.finding = Finding("internal", -1, failures[0])
    return report


def first_result(code):
    """What the first step of a program gives in an eager world."""
    with _modes_restored():
        world = World(code, lambda f: f, 0)
        world.step()
    return world.kept[-1] if world.kept else None


def deterministic(source, seed=0):
    """Whether the program does the same in several eager worlds, in which objects lie elsewhere.

    Their steps lie at other depths of the stack, too: docs/semantics.md assumes that nobody needs
    to know after how many calls it is used up.
    """
    held = []

    def elsewhere(f):
        held.extend(bytearray(n) for n in range(16, 520, 8) for _ in range(16 + len(held) % 7))
        held.extend((x for x in ()) for _ in range(16 + len(held) % 7))
        return f

    try:
        return all(run(source, seed, wrap=elsewhere, frames=n).finding is None for n in range(5))
    except Exception:
        return False
