"""Everything native that deals with the interpreter and not with torch (csrc/interp)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import CellType, CodeType
from typing import Any, Final, Generic, ParamSpec, Protocol, TypeVar, final, type_check_only

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
            lists       (list, (item, ...))          sets        (set, (element, ...))
            cells       (cell, value or ABSENT, mode)
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
    """

    def __new__(cls, exception: BaseException, /) -> Raise: ...
    def take(self) -> BaseException:
        """The exception, which is held no longer."""

@final
class Entry:
    """A guard and the mock function that may run while it holds.

    Args:
        guard: the checks.
        mock: called with exactly the caller's arguments, or with what `reads` says.
        reads: the guard's registers whose values the mock is called with.
        tag: whatever the maker of the entry wants to find again.

    Raises:
        ValueError: the guard does not fill one of the registers.
    """

    def __new__(
        cls,
        guard: Guard,
        mock: Callable[..., Any],
        reads: tuple[int, ...] | None = None,
        tag: object = None,
    ) -> Entry: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the mock gives; MISS if the guard does not hold."""

    @property
    def guard(self) -> Guard: ...
    @property
    def mock(self) -> Callable[..., Any]: ...
    tag: Any
    hits: int

@final
class Compiled(Generic[_P, _R]):
    """A callable that runs the first entry whose guard holds.

    When none does, it calls `on_miss(self, args, kwargs)`.  While a capture runs on this thread, or
    with `_magpy_plain`, it calls the wrapped function and nothing else; with `_magpy_part` it gives
    MISS instead of calling that.  `_magpy_driver`, unless None, is called in place of all this, but
    not while a capture runs.  Attributes that do not begin with `_magpy_` are those of the wrapped
    function, for reading and writing.

    Of the call whose number is `_magpy_sample` it tells `_magpy_options.sampled` what ran, which
    returns whether that was of use.  `_magpy_contest`, unless None, is asked about every other call
    (`begin(self)`): True for the wrapped function to be called, False for an entry, None for either
    as ever, unasked; of the first two it is told the result (`end(self, result)`), or given itself
    where the call raised.
    """

    def __new__(
        cls,
        wrapped: Callable[_P, _R],
        on_miss: Callable[[Compiled[_P, _R], tuple[Any, ...], dict[str, Any]], _R],
    ) -> Compiled[_P, _R]: ...
    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R: ...
    def __get__(self, instance: object, owner: type | None = None, /) -> Any: ...
    def __getattr__(self, name: str) -> Any: ...
    def _magpy_run(self, entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any], /) -> Any:
        """What the mock function of an entry gives for a call; MISS where the entry does not fit.

        For `on_miss`, which is asked about a call that was counted as a miss: it becomes a hit.
        """
    @property
    def _magpy_wrapped(self) -> Callable[_P, _R]: ...
    _magpy_entries: list[Entry]
    _magpy_hits: int
    _magpy_misses: int
    _magpy_calls: int
    _magpy_mixed: int
    _magpy_sample: int
    _magpy_plain: bool
    _magpy_part: bool
    _magpy_driven: Any
    _magpy_whole: int
    _magpy_driver: Callable[_P, _R] | None
    _magpy_contest: Any
    _magpy_options: Any

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

@type_check_only
class Handler(Protocol):
    """What the native session asks Python while the program runs, by these names.

    `magpy.capture.python.callbacks.Handler` answers.  Every method is called with events paused
    (`pause`).  An exception drops the capture (`Session.failure`) and does not reach the program,
    except out of those that make a call or an operation for it: `call`, `tracked_call`,
    `array_call`, `percent`.  A result that is not described is not looked at.

    `op` is CPython's number of the operator: NB_* of a binary operation (Include/opcode.h), Py_LT
    and the following of a comparison, the session's own of a unary one.  A tracked value is one
    that was given to `Session.track`.
    """

    # Calls of C functions.
    def classify(self, f: Any, /) -> int:
        """The verdict on a C callable, asked once for each (`Leaf` in c_function_tables.py)."""
    def call(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any], /) -> Any:
        """Performs a call whose verdict is HANDLER.

        Returns:
            Its result; ABSENT leaves the call to the probe, which watches what runs below it;
            NotImplemented leaves it to the probe unwatched, and `effect_done` follows.
        """
    def joined_call(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any], /) -> Any:
        """`sum`, `min` or `max` of a generator is called; performs it."""

    def tracked_call(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any], /) -> Any:
        """Performs a call that is given tracked values, or leaves it, as `call` does."""
    def array_call(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any], /) -> Any:
        """Performs a call that is given tensors; ABSENT leaves it to the probe."""
    def set_asked(self, container: Any, item: Any, /) -> bool:
        """An outside set is asked for an element; True: the guard asks it that again."""
    def array_operation(self, other: Any, /) -> None:
        """An operator is about to be applied to a tensor and `other`, which may be an array."""
    def percent(self, text: str, given: Any, /) -> Any:
        """`text % given`, a tensor or a tuple that holds one or a tracked value, is performed.

        Returns:
            Its text; ABSENT where that is left to the session.
        """
    def c_result(
        self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, /
    ) -> None:
        """A C function has returned tensors."""
    def effect_done(self, result: Any, /) -> Any:
        """A call for its effect is over, which `call` left to the probe, or `warns` to its caller.

        Args:
            result: its result; ABSENT if it raised.

        Returns:
            What the program gets in its place; ABSENT if it gets the result itself.
        """
    def below(self, function: Any, /) -> None:
        """A Python function starts where events are paused (see the function `below`)."""
    def warns(self, watched: bool, /) -> None:
        """A warning is about to be shown, `watched` from a C function that the program called."""
    def warning_raised(self, f: Any, /) -> None:
        """A C callable, or an operation on this value, raises a warning as an error."""
    def signalled(self, function: Any, number: int, /) -> bool:
        """A function is called like the handler of this signal; whether it is the handler."""

    # Values that differ from call to call.
    def rely_on(self, v: Any, /) -> None:
        """A tracked value is about to be looked at where that cannot be redone."""
    def truth(self, v: Any, /) -> None:
        """The truth of a tracked value decides a jump."""
    def same_number(self, a: Any, b: Any, /) -> bool:
        """Whether two numbers, one of them tracked, are one object to the program (`is`)."""
    def is_outside_value(self, value: int | str, /) -> bool:
        """Whether a tracked value is an argument, or was read of what holds it, and no more."""
    def counter(self, holder: Any, key: Any, value: Any, /) -> Any:
        """A number that is an input is read; `key` is None in a cell.

        Returns:
            An equal number, an object of its own, which the program gets.
        """
    def differs(self, holder: Any, key: Any, /) -> None:
        """What is read was another value in every call so far."""
    def inherits(self, cls: type, name: str, /) -> None:
        """A number that is an input is found through a class."""
    def contains(self, container: Any, item: Any, /) -> bool:
        """`item in container` with a tracked item; whether the answer is all that counts."""
    def table_item(self, op: int, table: Any, key: Any, result: Any, /) -> Any:
        """`table[key]` gave a plain value, which is asked for again; what the program gets."""
    def table_has(self, table: Any, key: Any, outcome: bool, /) -> None:
        """`key in table` was asked, and is asked again."""
    def table_new(self, table: Any, key: Any, /) -> bool:
        """A value is about to be put at a key that is new; whether that is asked again."""
    def table_store(self, table: Any, key: Any, value: Any, /) -> None:
        """A value is about to be put at a key of a dict, or the key into a set (True)."""
    def table_left(self, table: Any, /) -> None:
        """A dict or set is looked into in which `table_store` was told of keys."""
    def compare_items(self, a: Any, b: Any, /) -> bool:
        """Two tuples or lists with tracked items are tested for equality; whether that is all."""
    def binary(self, op: int, a: Any, b: Any, result: Any, /) -> Any:
        """A binary operation with a tracked operand gave `result`; what the program gets."""
    def compare(self, op: int, a: Any, b: Any, result: Any, /) -> Any:
        """A comparison with a tracked operand gave `result`; what the program gets."""
    def unary(self, op: int, a: Any, b: None, result: Any, /) -> Any:
        """A unary operation on a tracked value gave `result`; what the program gets."""
    def item(self, op: int, obj: Any, key: Any, result: Any, /) -> Any:
        """`obj[key]`, one of them tracked, gave `result`; what the program gets."""
    def attribute(self, op: int, obj: Any, name: str, value: Any, /) -> Any:
        """`obj.name` of a tracked object was read; what the program gets, None for the value."""
    def array_written(self, obj: Any, /) -> None:
        """A tracked object is about to be written to: one of its items, or an attribute."""
    def format(self, conversion: int, value: Any, spec: Any, result: Any, /) -> Any:
        """A tracked value was formatted in an f-string; what the program gets."""
    def join(self, op: int, parts: Any, unused: None, result: Any, /) -> Any:
        """The parts of an f-string, some tracked, were joined; what the program gets."""

    # Objects, classes and frames.
    def touch(self, obj: Any, deep: bool, /) -> None:
        """An object from outside that is no plain container is looked into as a whole by C code.

        Asked once for each; `deep`: what it holds is looked into as well.
        """
    def held(self, obj: Any, /) -> None:
        """An object of C from outside is reached that holds others which nothing else tells of."""
    def without_attributes(self, obj: Any, /) -> None:
        """An attribute is looked for in an object that has no dict of attributes yet."""
    def plain_name(self, holder: Any, name: str, /) -> None:
        """C code that takes an object for a mapping finds something that cannot be called there."""
    def tensor_store(self, tensor: Any, name: str, /) -> None:
        """An attribute that torch keeps of a tensor is about to be assigned."""
    def deleted(self, cls: type, name: str, /) -> None:
        """An attribute of a class is about to be deleted."""
    def matched(self, cls: type, /) -> None:
        """A pattern asks whether objects of a class are sequences or mappings."""
    def module_made(self, module: Any, /) -> None:
        """A module has been made."""
    def finalizable(self, obj: Any, /) -> None:
        """The program has made an object that runs code when it dies."""
    def finalized(self, obj: Any, /) -> None:
        """The code of such an object runs."""
    def array_reached(self, array: Any, /) -> None:
        """A numpy array from outside is reached for the first time; nobody has looked into it."""
    def raced(self, holder: Any, /) -> None:
        """Another thread has changed what is read of an outside object."""
    def of_list(self, function: Any, numbers: list[Any], /) -> int | float | None:
        """A number is computed of a list that is an input; None: C code is to do it."""
    def makes_tensor(self, function: Any, /) -> bool:
        """Whether a function of torch's makes a tensor of a list that is an input."""
    def entered(self, manager: Any, /) -> None:
        """A `with` block is about to be entered."""
    def handles(self, error: BaseException | None, /) -> None:
        """The program asks which exception is being handled: this one."""
    def caller_read(self, frame: Any, /) -> None:
        """The program looks at a frame that was there before the run."""
    def given_up(self) -> bool | None:
        """Whether nothing that follows is watched, or None: soon; asked in some thousand events."""
    def refuse(self, reason: str, /) -> None:
        """The session has seen what has no place in an entry."""
    def name_replaced(self, name: str, /) -> None:
        """The program puts something else at a name by which torch tells of an operation."""

@final
class Session:
    """The native side of one capture: watches a call, and keeps the log of what it read and wrote.

    An object is *outside* if it was there before the run and the run has reached it.  Of outside
    objects the session keeps how they were when the run first looked at them.

    Args:
        handler: answers while the program runs; `clear` lets go of it.
    """

    def __new__(cls, handler: Handler) -> Session: ...
    def run(self, f: Callable[..., _R], args: tuple[Any, ...], kwargs: dict[str, Any], /) -> _R:
        """Calls `f(*args, **kwargs)`, watched; what they are is outside.

        Raises:
            RuntimeError: a run is watched on this thread already.
        """
    def log(self, start: int = 0, /) -> list[tuple[str, Any, Any, Any]]:
        """The log from an event on: (kind, object, key or name or None, value or ABSENT).

        The kinds are `kKindNames` in csrc/interp/session_impl.h.
        """
    def is_outside(self, object: object, /) -> bool:
        """Whether an object was there before the run, and the run has reached it."""
    def made(self, object: object, /) -> bool:
        """Whether the run has made a function."""
    def asks_table(self, table: object, key: object, /) -> bool:
        """Whether what is done with a key of a dict or set is done again: it is an input."""
    def asks_length(self, table: object, /) -> bool:
        """Whether how much there is in a dict or set is asked again."""
    def reach(self, object: object, /) -> None:
        """An object comes from outside: from here on it counts as outside."""
    def touch(self, object: object, /) -> None:
        """All that an outside object holds, to any depth, must be what it was."""
    def compare(self, obj: object, /) -> None:
        """What an outside container holds must be what it was, and not what its items hold."""
    def attr_read(self, obj: object, name: str, value: object, /) -> None:
        """An attribute was read, and gave this value."""
    def stores(self) -> list[tuple[Any, Any, Any, int]]:
        """What the run itself has put into outside objects, in order.

        Returns:
            (dict, cell, list, deque, or object with a slot; key or name, None for a cell and for
            what is appended; the value if it is a plain one, or None; its address, 0 if the place
            was emptied).
        """
    @property
    def others_ran(self) -> bool:
        """Whether another thread has run since the call began."""
    def containers(self) -> list[tuple[Any, Any, bool, int, bool]]:
        """The outside containers that were written, or read as a whole.

        Returns:
            (container, its content at the start, whether it was read as a whole, how many items
            were appended to a deque that was not, whether it may have been changed in ways that
            `stores` does not tell).
        """
    def written_cells(self) -> list[tuple[CellType, Any]]:
        """The outside cells that were written, with their content before or ABSENT."""
    def track(self, value: object, var: int, /) -> None:
        """This very object differs from call to call: it is a variable of the record."""
    def tracked(self, value: object, /) -> int | None:
        """The variable of a tracked object, by its identity; None if it is not tracked."""
    def rely_on(self, value: object, /) -> None:
        """Asks `Handler.rely_on` for each tracked object that is found in a value."""
    def differ(self, holder: object, key: object, /) -> None:
        """Reading what is at a place asks `Handler.differs`.

        Args:
            holder: an object, container or cell, held by the caller until the run ends.
            key: where in it; None for anything in it.
        """
    def input(self, numbers: list[Any], /) -> None:
        """A list of numbers is an input, of which `Handler.makes_tensor` tells what reads it."""
    def vary(self, holder: object, key: object, /) -> None:
        """The number at a place is an input: reading it asks `Handler.counter`.

        Args:
            holder: a container, a class or a cell, held by the caller until the run ends.
            key: where in it; anything for a cell.
        """
    def clear(self) -> None:
        """Lets go of everything, and of the handler."""
    #: Whether the garbage collector runs after the call: it rests while the call is watched.
    collecting: bool
    @property
    def failure(self) -> tuple[str, BaseException | str | None] | None:
        """The stage at which the capture was dropped, and why; None if it was not."""
    @property
    def events(self) -> int:
        """How many events there were: those that are no reads or writes count, too."""

def below(on: bool) -> bool: ...
def hold_signals() -> None: ...
def release_signals() -> None: ...
def let_signals_in(function: Callable[[], _R], /) -> _R: ...
def pause() -> None: ...
def resume() -> None: ...
def call(function: Callable[..., _R], args: tuple[Any, ...], kwargs: Any, /) -> _R: ...
def watched(
    function: Callable[..., _R], args: tuple[Any, ...], kwargs: Any, hands_on: bool = False, /
) -> _R: ...
def session_active() -> bool: ...
def set_types(*types: type) -> None: ...
def set_homes(homes: Sequence[Any], /) -> None:
    """Says by whose names torch tells a mode of operations: classes, and the dicts of modules."""

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

def collect(tree: Any, found: set[Any], kind: type, /) -> None:
    """Adds `var` of every object of this very class to a set.

    Args:
        tree: tuples, lists, dicts and slices, in which the objects are.
        found: the set.
        kind: the class.

    Raises:
        TypeError: `found` is no set, or `kind` no class.
        RecursionError: the tree holds itself.
    """

def c_base(cls: type, /) -> type:
    """The nearest class written in C along the chain of `__base__`."""

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
