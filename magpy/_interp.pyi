"""Everything native that deals with the interpreter and not with torch (csrc/interp)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import CodeType
from typing import Any, Final, Generic, ParamSpec, TypeVar, final

_P = ParamSpec("_P")
_R = TypeVar("_R")

# ---------------------------------------------------------------------------- guards

@final
class Absent:
    """The type of ABSENT."""

ABSENT: Final[Absent]
"""In anchors: the key, attribute or cell content must be missing."""

@final
class Guard:
    """The checks of one entry: a flat program over the arguments, and anchored objects.

    Registers hold the positional arguments, then the keyword arguments in the order of `kwnames`,
    then temporaries.  An operand is a register or `("a", object)`.  No check raises, and none runs
    code of the user's classes.

    Args:
        npos: how many positional arguments the call has.
        kwnames: the names of its keyword arguments, in the caller's order.
        nregs: how many registers there are (more are made when a check writes beyond).
        checks: tuples that begin with the name of a check::

            ("type", o, cls)            ("is", o, object)       ("leaf", o, value)
            ("same", o1, o2)            ("distinct", (o, ...), (object, ...))
            ("dict_get", dst, o, key)   ("dict_absent", o, key) ("dict_keys", o, (key, ...))
            ("inst_dict", dst, o)       ("attr", dst, o, name)  ("attr_absent", o, name)
            ("len", o, n)               ("item", dst, o, i)     ("set", o, frozenset)
            ("deque", first_dst, o, n)  ("cell", dst, o)        ("cell_empty", o)
            ("func", o, code, defaults, kwdefaults)
            ("method", func_dst, self_dst, o)
            ("tensor", o, TensorMeta)   ("gradient", dst, o)
            ("overlap", (o, ...), ((i, j, how), ...), m)   how the first m overlap with others
            ("py", function, (o, ...))

        anchors: lists of records about long-lived objects, checked before `checks`; `mode` is
            "is" or "leaf"::

            dicts       (dict, [(key, value or ABSENT, mode), ...])
            dict_keys   (dict, (key, ...))           exactly these, in this order
            inst_dicts  (object, dict)               object.__dict__ is this dict
            objtypes    (object, cls)
            types       (cls, [(name, value or ABSENT), ...])
            supers      (cls, after, name, value or ABSENT)
            lists       (list, (item, ...))          deques      (deque, (item, ...))
            sets        (set, (element, ...))        cells       (cell, value or ABSENT, mode)
            funcs       (function, code, defaults, kwdefaults); ABSENT: any
            attrs       (object, name, value or ABSENT, mode)
            tensors     (tensor, TensorMeta)         state       TorchState or None
            redo        (callable, args, expected, mode)

    Raises:
        TypeError: a value of the wrong kind.
        ValueError: an unknown check, or a register that is read before it is written.
    """

    def __new__(
        cls,
        npos: int,
        kwnames: tuple[str, ...],
        nregs: int,
        checks: Sequence[tuple[Any, ...]],
        anchors: Mapping[str, Any],
    ) -> Guard: ...
    def check(self, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None, /) -> bool: ...
    def explain(
        self, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None, /
    ) -> tuple[int | tuple[str, int, int], str] | None:
        """Which check fails first, and why.

        Returns:
            None when every check holds, else where and a text.  `where` is an index into `checks`,
            or `(section, i, j)` for `anchors[section][i]` and its j-th part (-1: none), or
            `("args", -1, -1)`.
        """
    def describe(self) -> list[str]: ...

def add_leaf_type(cls: type, /) -> None:
    """Makes values of exactly this class compare with `==` wherever "leaf" is said.

    Its `==` must be harmless C code.
    """

def leaf_equal(a: object, b: object, /) -> bool:
    """Same object, or the same exact leaf type and value: nan is nan, 0.0 is not -0.0 nor 0."""

def set_tensor_api(capsule: object, /) -> None: ...

# ---------------------------------------------------------------------------- dispatch

@final
class Miss:
    """The type of MISS."""

MISS: Final[Miss]
"""What a mock function returns when a value that it computed went another way.

The next entry is tried. From `on_miss` it says that the call is to run eagerly.
"""

@final
class Raise:
    """What a mock function or `on_miss` returns to raise an exception.

    It is raised with the traceback that it has: frames of magpy are no part of it.

    Args:
        exception: what is raised.
        finish: called with this object when the mock function is over; gives what is raised.
    """

    def __new__(
        cls,
        exception: BaseException,
        /,
        finish: Callable[[Raise], BaseException] | None = None,
    ) -> Raise: ...
    def take(self) -> BaseException:
        """The exception, which is held no longer."""

@final
class Entry:
    """A guard and the mock function that may run while it holds.

    Args:
        guard: the checks.
        mock: called with exactly the caller's arguments.
        needs_memo: whether a dict, fresh in each call and shared by the entries tried in it, comes
            before them.
        tag: whatever the maker of the entry wants to find again.
    """

    def __new__(
        cls, guard: Guard, mock: Callable[..., Any], needs_memo: bool = False, tag: object = None
    ) -> Entry: ...
    @property
    def guard(self) -> Guard: ...
    @property
    def mock(self) -> Callable[..., Any]: ...
    @property
    def needs_memo(self) -> bool: ...
    tag: Any
    hits: int

@final
class Compiled(Generic[_P, _R]):
    """A callable that runs the first entry whose guard holds.

    When none does, it calls `on_miss(self, args, kwargs)`.  While a capture runs on this thread, or
    with `_magpy_plain`, it calls the wrapped function and nothing else.  Attributes that do not
    begin with `_magpy_` are those of the wrapped function, for reading and writing.
    """

    def __new__(
        cls,
        wrapped: Callable[_P, _R],
        on_miss: Callable[[Compiled[_P, _R], tuple[Any, ...], dict[str, Any]], _R],
    ) -> Compiled[_P, _R]: ...
    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R: ...
    def __get__(self, instance: object, owner: type | None = None, /) -> Any: ...
    def __getattr__(self, name: str) -> Any: ...
    @property
    def __wrapped__(self) -> Callable[_P, _R]: ...
    @property
    def _magpy_wrapped(self) -> Callable[_P, _R]: ...
    @property
    def _magpy_on_miss(self) -> Callable[..., Any]: ...
    _magpy_entries: list[Entry]
    _magpy_hits: int
    _magpy_misses: int
    _magpy_calls: int
    _magpy_plain: bool
    _magpy_options: Any
    _magpy_owner: Any

MODULE_SLOT: Final[str]
"""The slot in which a compiled module has its `Compiled`."""

@final
class ModuleCall:
    """The `__call__` of compiled modules: calls what is in MODULE_SLOT, without a frame.

    It binds like a function.
    """

    def __new__(cls) -> ModuleCall: ...
    def __call__(self, module: Any, /, *args: Any, **kwargs: Any) -> Any: ...
    def __get__(self, instance: object, owner: type | None = None, /) -> Any: ...

# ---------------------------------------------------------------------------- the session

@final
class Session:
    """The native side of one capture; `magpy.capture.session` owns it."""

    collecting: bool

    def __new__(cls, owner: Any) -> Session: ...
    def run(self, *args: Any) -> Any: ...
    def log(self, start: int = 0) -> Any: ...
    def is_outside(self, object: object, /) -> bool: ...
    def reach(self, object: object, /) -> Any: ...
    def touch(self, object: object, /) -> Any: ...
    def made(self, object: object, /) -> Any: ...
    def attr_read(self, *args: Any) -> Any: ...
    def containers(self) -> Any: ...
    def written_cells(self) -> Any: ...
    def clear(self) -> None: ...
    def rely_on(self, value: Any, /) -> None: ...
    def track(self, *args: Any) -> Any: ...
    def tracked(self, *args: Any) -> Any: ...
    def compare(self, obj: object, /) -> None: ...
    def vary(self, holder: object, key: object, /) -> None: ...
    @property
    def failure(self) -> Any: ...
    @property
    def events(self) -> Any: ...

def below(on: bool) -> bool: ...
def hold_signals() -> None: ...
def release_signals() -> None: ...
def let_signals_in(function: Callable[[], _R], /) -> _R: ...
def pause() -> None: ...
def resume() -> None: ...
def call(function: Callable[..., _R], args: tuple[Any, ...], kwargs: Any, /) -> _R: ...
def watched(function: Callable[..., _R], args: tuple[Any, ...], kwargs: Any, /) -> _R: ...
def session_active() -> bool: ...
def set_types(*types: type) -> None: ...
def set_leaf_code(code: CodeType, verdict: int, /) -> None: ...
def forget_leaves() -> None: ...
def own_dict(obj: object, /) -> dict[str, Any] | None:
    """The dict of an object's attributes, as it stands: no property `__dict__` is asked.

    None for a class, for an object without one, and where it is a subclass of dict.
    """

def referent(obj: object, /) -> Any:
    """What a weak reference or a weak proxy refers to; None if it is dead, or no such thing."""

def is_instance(obj: object, classes: Any, /) -> bool:
    """Whether the type of an object is one of these classes, or derives from one.

    Raises:
        TypeError: `classes` is neither a class nor a tuple of classes.
    """

def c_base(cls: type, /) -> type:
    """The nearest class written in C along the chain of `__base__`."""

def functions_of(module: Any, /) -> dict[str, Any]:
    """The C functions that a module was made with, by name, whatever stands there now.

    Raises:
        TypeError: it is no module.
    """

def function_of(frame: Any, /) -> Any:
    """The function that a frame runs, or None if it runs no function."""

def is_caller(frame: Any, /) -> bool:
    """Whether a frame was there before the run that this thread watches."""

def fresh(*args: Any) -> Any: ...
def type_lookup(cls: type, name: str, /) -> Any: ...

# ---------------------------------------------------------------------------- the hook

def set_instrument(
    make: Callable[[CodeType], CodeType], offsets: Callable[[CodeType], Any], /
) -> None: ...
def add_counters(code: CodeType, names: Iterable[str], /) -> None: ...
def set_shows_warnings(code: CodeType, /) -> None: ...
def set_skip_prefixes(prefixes: Sequence[str], /) -> None: ...
def skip_prefixes() -> list[str]: ...
def instrument_all(how: int, /) -> None: ...
def hook_installed() -> int: ...
def hook_counts() -> Any: ...
def twin_of(code: CodeType, /) -> CodeType | None: ...
def original_of(code: CodeType, /) -> CodeType | None: ...

# ---------------------------------------------------------------------------- the probes
# Called by twins only (magpy.instrument.rewrite), with the operands of the instruction.

probe_attr_delete: Any
probe_attr_load: Any
probe_attr_store: Any
probe_binary: Any
probe_build_map: Any
probe_build_set: Any
probe_build_string: Any
probe_call: Any
probe_call_ex: Any
probe_call_kw: Any
probe_cell_load: Any
probe_cell_store: Any
probe_compare: Any
probe_contains: Any
probe_convert: Any
probe_format: Any
probe_format_spec: Any
probe_global_load: Any
probe_global_store: Any
probe_hashed: Any
probe_identity: Any
probe_import: Any
probe_item_delete: Any
probe_item_load: Any
probe_item_store: Any
probe_iter: Any
probe_make_function: Any
probe_name_access: Any
probe_name_load: Any
probe_next: Any
probe_set_update: Any
probe_slice_load: Any
probe_slice_store: Any
probe_super_attr: Any
probe_touch_extend: Any
probe_touch_iter: Any
probe_touch_match: Any
probe_touch_unpack: Any
probe_touch_with: Any
probe_truth: Any
probe_unary: Any
probe_unsupported: Any
