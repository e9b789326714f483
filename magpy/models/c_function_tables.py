"""What C functions do, as tables: by module and name, by object, and by the class of a method.

Owns the verdicts (`Leaf`), the treatments (`Effect`) and the tables.  Does not own which table
answers for a callable (magpy/models/callables.py, which reads them) nor what users register, which
that module puts into `EFFECTS` and `VERDICTS`, nor torch's functions
(magpy/models/torch_callables.py).  Used by magpy/models/callables.py; `Leaf` and `Effect` by
whoever asks for a verdict.
"""

from __future__ import annotations

import builtins
import collections
import functools
import operator
import time
import types
import warnings
import weakref
from enum import Enum, IntEnum, auto


class Leaf(IntEnum):
    """Verdicts; the values are those of csrc/interp/session_impl.h."""

    FRAME = 0  # Python frames do the work, and those are watched
    TOUCH = 1  # reads its arguments, containers among them deeply; may change them; nothing else
    PURE = 2  # reads nothing that could change
    GETATTR = 3
    SETATTR = 4
    DELATTR = 5
    DICT_GET = 6
    BLIND = 7  # changes its receiver without looking at it
    DICT_SET = 8
    HANDLER = 9  # magpy.capture.python.c_calls performs the call
    TORCH = 10  # like TOUCH, and may return tensors that no mode saw
    DICT_DEFAULT = 11


class Effect(Enum):
    """How a leaf that goes to the handler is treated there."""

    UNKNOWN = auto()  # may do anything
    EFFECT = auto()  # redone in order when the entry is used
    RANDOM = auto()  # redone in order; its value is an input
    WHOLE = auto()  # called as a whole and recorded as one operation
    REFUSE = auto()
    INSIDE = auto()  # refused, but for what is below a call that is done as a whole
    REDUCE = auto()  # reads the state of its receiver
    REMADE = auto()  # gives its receiver, an object of a class written in C, another state
    TORCH_STATE = auto()  # switches a setting of torch's (magpy/models/torch_state.py)
    QUESTION = auto()  # asks torch for a state that the guard asks for again
    IN_ORDER = auto()  # has to do with a device's queue of work: done again at its place
    VARS = auto()
    MEMO = auto()  # functools.lru_cache: remembers results
    CLOCK = auto()  # its value differs in every call and nothing else happens
    PARTIAL = auto()
    WEAKREF = auto()
    HOLDERS = auto()  # asks who has weak references to an object, which the recorder may have
    NUMBER = auto()  # float() and int(): they may take a tensor's value
    SEED = auto()  # seeds torch's generators: redone at its place among the operations
    FORMAT = auto()  # str.format: may read attributes of what it is given
    LOCK = auto()  # takes a lock or gives it back, which an entry need not redo
    READ = auto()  # reads the world and leaves it alone: read again before an entry is used
    FILES = auto()  # asks one thing of the file system, and leaves it alone
    PATH = auto()  # joins the parts of a path
    COLLECTOR = auto()  # the garbage collector, which rests while a run is watched
    CONTEXT = auto()  # reads or sets a context variable
    REGISTRY = auto()  # asks an abstract base class about its virtual subclasses
    HANDLED = auto()  # asks which exception is being handled, which may be the caller's
    IDENTITY = auto()  # tells which object it is given
    CALLABLE = auto()  # asks whether an object's class has a `__call__`
    SCRIPT_READ = auto()  # reads an attribute that TorchScript holds
    SCRIPT = auto()  # compiled by TorchScript
    OVERRIDES = auto()  # asks whether a __torch_function__ wants to hear of an operation
    TRANSFORM = auto()  # what torch's transforms of functions consist of: an operation
    TRANSFORM_READ = auto()  # asks which transforms are active
    CHECKPOINT = auto()  # torch.utils.checkpoint: a block that is computed again in a backward pass
    SAVED = auto()  # sets hooks of saved tensors
    NODE_HOOK = auto()  # gives a node of autograd's graph a hook
    DYNAMO = auto()  # what torch.compile has made, which looks at the modes and the hook of a run
    MARK = auto()  # marks of torch's profiler
    ASIDE = auto()  # Python of torch's that concerns nobody else: it is not watched
    OPERATION = auto()  # Python of torch's that is one operation
    IMPORT = auto()  # loads a module, whose code is not watched
    IN_PYTHON = auto()  # goes by data in each call, and what it calls is compiled


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Modules whose C functions and types compute from their arguments and the state of their objects,
# and keep nothing of their own.  An object's state that no other guard covers is seen to when the
# object is touched (magpy/objects/c_state.py).
COMPUTE_MODULES = _names(
    """
    builtins math cmath operator _operator itertools functools _functools collections
    _collections _collections_abc _sre re _struct struct _json _string string _abc abc _weakref
    weakref typing _typing types enum _bisect _heapq numbers fractions copy copyreg _copyreg
    inspect _ast ast _opcode marshal zlib _hashlib hashlib _blake2 _sha1 _sha2 _sha256 _sha512
    _sha3 _md5 binascii unicodedata errno _stat _codecs codecs dataclasses contextlib array
    _datetime datetime uuid _statistics _queue opt_einsum einops
    """
)
# Of what is written in C there: what keeps something of its own, or reads and writes files.
NOT_COMPUTING = _names(
    """
    register unregister register_error lookup_error tofile fromfile dump from_file set_result
    set_exception add_done_callback then done value wait
    """
)
# What torch's functions, and those of pybind11, are bound to.
NO_OWNERS = ("_VariableFunctionsClass", "PyCapsule", "pybind11_")
# C functions that read the world outside the program's objects and change nothing.
_READS = {
    "sys": _names(
        """
        getrecursionlimit getswitchinterval getdefaultencoding getfilesystemencoding
        getfilesystemencodeerrors getdlopenflags gettrace getprofile is_finalizing
        get_int_max_str_digits
        """
    ),
    "gc": _names("get_threshold get_debug get_freeze_count"),
    "_thread": _names("get_ident get_native_id"),
    "_signal": _names("getsignal"),
    "_tracemalloc": _names("is_tracing get_traceback_limit"),
    "_locale": _names("nl_langinfo getencoding"),
    "_abc": _names("get_cache_token"),
    "torch._C": _names("initial_seed"),
    "decimal": _names("getcontext"),
    "posix": _names(
        """
        access cpu_count getcwd getcwdb getegid geteuid getgid getlogin getpgid getpid getppid
        getpriority getuid isatty lstat stat
        """
    ),
    "_io": _names("fileno getvalue isatty readable seekable tell writable"),
    "functools": _names("cache_info"),
}
_EFFECTS_OF = {
    "posix": _names("putenv unsetenv"),
    "_warnings": _names("_filters_mutated _filters_mutated_lock_held"),
    "functools": _names("cache_clear"),
}
_LOCK = {
    "_thread": _names(
        """
        allocate_lock lock RLock acquire acquire_lock release release_lock __enter__ __exit__ locked
        locked_lock _is_owned _release_save _acquire_restore
        """
    ),
}
_HANDLED = {"sys": _names("exc_info exception")}
COMPUTES = {
    "posix": _names("fspath _path_normpath _path_splitroot _path_splitroot_ex"),
    "sys": _names("_getframe getrefcount getsizeof intern _current_frames"),
    "_locale": _names("strcoll strxfrm"),
    "_imp": _names(
        """
        acquire_lock extension_suffixes find_frozen is_builtin is_frozen is_frozen_package lock_held
        release_lock
        """
    ),
}
# The clock, also as text, and what else the operating system tells differently every time.
_CLOCKS = {
    "time": _names(
        """
        asctime ctime gmtime localtime monotonic monotonic_ns perf_counter perf_counter_ns
        process_time process_time_ns strftime thread_time thread_time_ns time time_ns
        """
    ),
    "datetime": _names("now today utcnow"),
    "_datetime": _names("now today utcnow"),
    "_uuid": _names("generate_time_safe UuidCreate"),
    "posix": _names("getloadavg getrandom times urandom"),
}
_COLLECTOR = {"gc": _names("collect disable enable freeze isenabled set_threshold unfreeze")}
_REGISTRY = {"_abc": _names("_abc_instancecheck _abc_subclasscheck")}
_REFUSED = {"_thread": _names("start_new_thread start_new start_joinable_thread")}
_CONTEXT = {"_contextvars": _names("get set reset")}
AMBIENT = ("decimal", "_decimal")
_ZONED = {
    "time": _names("mktime"),
    "datetime": _names("fromtimestamp timestamp astimezone"),
    "_datetime": _names("fromtimestamp timestamp astimezone"),
}
#: Treatments and verdicts of single functions, also those that users registered.
EFFECTS: dict[object, Effect] = {callable: Effect.CALLABLE}
VERDICTS: dict[object, Leaf] = {}
#: Verdicts of methods, by the class that defines them.
BY_METHOD: dict[tuple[type, str], Leaf] = {}


def _method_verdicts() -> None:
    cls: type
    for name in ("append", "extend"):
        for cls in (list, collections.deque):
            BY_METHOD[cls, name] = Leaf.BLIND
    for name in ("add", "update"):
        BY_METHOD[set, name] = Leaf.BLIND
    for cls in (dict, collections.OrderedDict, collections.defaultdict):
        for name in ("get", "__getitem__", "__contains__"):
            BY_METHOD[cls, name] = Leaf.DICT_GET
        BY_METHOD[cls, "__setitem__"] = Leaf.DICT_SET
        BY_METHOD[cls, "setdefault"] = Leaf.DICT_DEFAULT
        BY_METHOD[cls, "update"] = Leaf.BLIND
    for cls in (object, type, types.ModuleType):
        BY_METHOD[cls, "__setattr__"] = Leaf.SETATTR
        BY_METHOD[cls, "__delattr__"] = Leaf.DELATTR
        BY_METHOD[cls, "__getattribute__"] = Leaf.GETATTR
    for name in (
        "__init__",
        "__new__",
        "__init_subclass__",
        "__subclasshook__",
        "__class__",
        "__sizeof__",
        "__hash__",
    ):
        BY_METHOD[object, name] = Leaf.PURE
    for name in ("__reduce_ex__", "__reduce__", "__getstate__", "__dir__"):
        BY_METHOD[object, name] = Leaf.HANDLER
    for name in (
        "__call__",
        "__new__",
        "mro",
        "__instancecheck__",
        "__subclasscheck__",
        "__prepare__",
    ):
        BY_METHOD[type, name] = Leaf.PURE
    BY_METHOD[type, "__subclasses__"] = Leaf.HANDLER


_method_verdicts()

VERDICTS.update(
    {
        getattr: Leaf.GETATTR,
        hasattr: Leaf.GETATTR,
        setattr: Leaf.SETATTR,
        delattr: Leaf.DELATTR,
        type: Leaf.PURE,
        super: Leaf.PURE,
        property: Leaf.PURE,
        staticmethod: Leaf.PURE,
        classmethod: Leaf.PURE,
        object: Leaf.PURE,
        types.MethodType: Leaf.PURE,
        types.FunctionType: Leaf.PURE,
        types.SimpleNamespace: Leaf.TOUCH,
        functools.partial: Leaf.PURE,
    }
)
for _name in [
    "isinstance",
    "issubclass",
    "globals",
    "locals",
    "eval",
    "exec",
    "compile",
    "__import__",
    "__build_class__",
    "breakpoint",
]:
    VERDICTS[getattr(builtins, _name)] = Leaf.PURE


def _effects() -> None:
    EFFECTS[time.sleep] = Effect.EFFECT
    EFFECTS[float] = Effect.NUMBER
    EFFECTS[int] = Effect.NUMBER
    EFFECTS[builtins.print] = Effect.EFFECT
    EFFECTS[builtins.input] = Effect.REFUSE
    EFFECTS[builtins.open] = Effect.REFUSE
    EFFECTS[builtins.vars] = Effect.VARS
    EFFECTS[builtins.dir] = Effect.VARS
    EFFECTS[builtins.id] = Effect.IDENTITY
    EFFECTS[builtins.hash] = Effect.IDENTITY
    EFFECTS[operator.length_hint] = Effect.REFUSE
    EFFECTS[weakref.proxy] = Effect.REFUSE  # what is done with it is done with another object
    EFFECTS[weakref.getweakrefs] = Effect.HOLDERS
    EFFECTS[weakref.getweakrefcount] = Effect.HOLDERS
    EFFECTS[warnings.warn] = Effect.EFFECT
    EFFECTS[warnings.warn_explicit] = Effect.EFFECT


_effects()


#: The treatment of what stands in a table, by its module and name.
BY_HOME = (
    (_READS, Effect.READ),
    (_EFFECTS_OF, Effect.EFFECT),
    (_LOCK, Effect.LOCK),
    (_CLOCKS, Effect.CLOCK),
    (_COLLECTOR, Effect.COLLECTOR),
    (_REGISTRY, Effect.REGISTRY),
    (_REFUSED, Effect.REFUSE),
    (_CONTEXT, Effect.CONTEXT),
    (_ZONED, Effect.REFUSE),
    (_HANDLED, Effect.HANDLED),
)
