"""Classes, metaclasses and modules that get a special method after a call was captured.

Owns: whole programs. Does not own attributes in general (external_state/test_state_of_every_kind.py, external_state/test_ways_to_read.py).

PYTEST_DONT_REWRITE: the programs must be what they look like.
"""

# ruff: noqa: E501

import pytest

from tests.fuzz import __main__ as fuzz
from tests.soundness.subprocess_programs import children_ready  # noqa: F401

#: Those that are captured anew in each call, or run eagerly.
NO_HITS = {"index_object", "slot_object_arg"}
PROGRAMS = {
    "super_len_of_subclass_list": """
import torch
class L(list): pass
l = L([1, 2])
def f(x):
    return len(l), bool(l), x * 2
target = f
def steps(f):
    for i in range(2):
        yield attempt(f, torch.ones(2))
    L.__len__ = lambda s: 7
    yield attempt(f, torch.ones(2))
    L.__bool__ = lambda s: False
    yield attempt(f, torch.ones(2))
""",
    "dict_subclass_getitem": """
import torch
class D(dict): pass
d = D(a=1)
def f(x):
    return d["a"], d.get("a"), "a" in d, list(d), x * 2
target = f
def steps(f):
    for i in range(2):
        yield attempt(f, torch.ones(2))
    D.__getitem__ = lambda s, k: 7
    yield attempt(f, torch.ones(2))
    D.get = lambda s, k: 9
    yield attempt(f, torch.ones(2))
    D.__contains__ = lambda s, k: False
    yield attempt(f, torch.ones(2))
    D.__iter__ = lambda s: iter([4])
    yield attempt(f, torch.ones(2))
""",
    "dict_subclass_missing": """
import torch
class D(dict): pass
d = D(a=1)
def f(x):
    try:
        return d["b"], x * 2
    except KeyError:
        return "none", x
target = f
def steps(f):
    for i in range(2):
        yield attempt(f, torch.ones(2))
    D.__missing__ = lambda s, k: 7
    yield attempt(f, torch.ones(2))
""",
    "callable_object": """
import torch
class P: pass
p = P()
def f(x):
    try:
        return p(x)
    except TypeError as e:
        return str(e)
target = f
def steps(f):
    for i in range(2):
        yield attempt(f, torch.ones(2))
    P.__call__ = lambda s, x: x * 3
    yield attempt(f, torch.ones(2))
    P.__call__ = lambda s, x: x * 4
    yield attempt(f, torch.ones(2))
    p.__call__ = lambda x: x * 5
    yield attempt(f, torch.ones(2))
""",
    "with_object": """
import torch
class P:
    def __enter__(self): return 1
    def __exit__(self, *a): return None
p = P()
def f(x):
    with p as q:
        return x * q
target = f
def steps(f):
    for i in range(2):
        yield attempt(f, torch.ones(2))
    P.__enter__ = lambda s: 5
    yield attempt(f, torch.ones(2))
""",
    "unpack_object": """
import torch
class P: pass
p = P()
def f(x):
    try:
        a, b = p
        return a, b, x
    except TypeError as e:
        return str(e)
target = f
def steps(f):
    for i in range(2):
        yield attempt(f, torch.ones(2))
    P.__iter__ = lambda s: iter((1, 2))
    yield attempt(f, torch.ones(2))
    P.__iter__ = lambda s: iter((3, 4))
    yield attempt(f, torch.ones(2))
""",
    "star_mapping": """
import torch
class P: pass
p = P()
def g(**k): return k
def f(x):
    try:
        return g(**p), x
    except TypeError as e:
        return "no"
target = f
def steps(f):
    for i in range(2):
        yield attempt(f, torch.ones(2))
    P.keys = lambda s: ["a"]
    P.__getitem__ = lambda s, k: 4
    yield attempt(f, torch.ones(2))
    P.__getitem__ = lambda s, k: 5
    yield attempt(f, torch.ones(2))
""",
    "index_object": """
import torch
class P:
    def __index__(self): return 1
p = P()
L = [1, 2, 3]
def f(x):
    return L[p], x[p], range(3)[p], x * 2
target = f
def steps(f):
    for i in range(2):
        yield attempt(f, torch.arange(3.))
    P.__index__ = lambda s: 2
    yield attempt(f, torch.arange(3.))
""",
    "op_on_objects": """
import torch
class P: pass
p = P()
def f(x):
    try:
        return p + 1, x
    except TypeError as e:
        return str(e)
target = f
def steps(f):
    for i in range(2):
        yield attempt(f, torch.ones(2))
    P.__add__ = lambda s, o: 11
    yield attempt(f, torch.ones(2))
    P.__add__ = lambda s, o: 12
    yield attempt(f, torch.ones(2))
""",
    "tensor_op_object": """
import torch
class P: pass
p = P()
def f(x):
    try:
        return x + p
    except TypeError as e:
        return "no"
target = f
def steps(f):
    for i in range(2):
        yield attempt(f, torch.ones(2))
    P.__radd__ = lambda s, o: o * 11
    yield attempt(f, torch.ones(2))
    P.__radd__ = lambda s, o: o * 12
    yield attempt(f, torch.ones(2))
""",
    "getattr_on_module_gains": """
import torch, types
m = types.ModuleType("m")
def f(x):
    return getattr(m, "k", 1), x
target = f
def steps(f):
    for i in range(2):
        yield attempt(f, torch.ones(2))
    m.__getattr__ = lambda n: 5
    yield attempt(f, torch.ones(2))
    m.__getattr__ = lambda n: 6
    yield attempt(f, torch.ones(2))
""",
    "hasattr_class_gets": """
import torch
class P: pass
def f(x):
    return hasattr(P, "q"), getattr(P, "q", 3), x
target = f
def steps(f):
    for i in range(2):
        yield attempt(f, torch.ones(2))
    P.q = 1
    yield attempt(f, torch.ones(2))
    del P.q
    yield attempt(f, torch.ones(2))
""",
    "metaclass_getattr": """
import torch
class M(type): pass
class P(metaclass=M): pass
def f(x):
    return getattr(P, "q", 3), x
target = f
def steps(f):
    for i in range(2):
        yield attempt(f, torch.ones(2))
    M.__getattr__ = lambda c, n: 8
    yield attempt(f, torch.ones(2))
    M.q = 5
    yield attempt(f, torch.ones(2))
""",
    "nn_module_special": """
import torch
lin = torch.nn.Linear(2, 2)
def f(x):
    return bool(lin), lin == 3, x * 2
target = f
def steps(f):
    for i in range(2):
        yield attempt(f, torch.ones(2))
    torch.nn.Linear.__len__ = lambda s: 0
    r = attempt(f, torch.ones(2))
    del torch.nn.Linear.__len__
    yield r
    torch.nn.Module.__len__ = lambda s: 0
    r = attempt(f, torch.ones(2))
    del torch.nn.Module.__len__
    yield r
""",
    "enum_special": """
import torch, enum
class E(enum.Enum):
    A = 0
    B = 1
def f(x):
    return bool(E.A), E.A == 0, E.A in (E.A,), x
target = f
def steps(f):
    for i in range(2):
        yield attempt(f, torch.ones(2))
    E.__bool__ = lambda s: s._value_ == 1
    yield attempt(f, torch.ones(2))
    E.__eq__ = lambda s, o: s._value_ == o
    yield attempt(f, torch.ones(2))
""",
    "dataclass_eq": """
import torch, dataclasses
@dataclasses.dataclass
class P:
    a: int = 1
p, q = P(), P()
def f(x):
    return p == q, repr(p), x
target = f
def steps(f):
    for i in range(2):
        yield attempt(f, torch.ones(2))
    q.a = 3
    yield attempt(f, torch.ones(2))
    P.__eq__ = lambda s, o: True
    yield attempt(f, torch.ones(2))
    P.__repr__ = lambda s: "P"
    yield attempt(f, torch.ones(2))
""",
    "slot_object_arg": """
import torch
class P:
    __slots__ = ("a",)
    def __init__(self, a): self.a = a
def f(x, p):
    return x * p.a, hasattr(p, "b"), p
target = f
def steps(f):
    for i in range(2):
        yield attempt(f, torch.ones(2), P(i + 1))
    P.b = 1
    yield attempt(f, torch.ones(2), P(2))
""",
    "named_tuple_sub": """
import torch, collections
class P(collections.namedtuple("P", "a b")): pass
p = P(1, 2)
def f(x):
    return p[0], p.a, len(p), tuple(p), x
target = f
def steps(f):
    for i in range(2):
        yield attempt(f, torch.ones(2))
    P.__getitem__ = lambda s, i: 7
    yield attempt(f, torch.ones(2))
    P.a = 9
    yield attempt(f, torch.ones(2))
    P.__len__ = lambda s: 5
    yield attempt(f, torch.ones(2))
    P.__iter__ = lambda s: iter([0])
    yield attempt(f, torch.ones(2))
""",
    "str_subclass": """
import torch
class S(str): pass
s = S("ab")
def f(x):
    return s + "c", len(s), s == "ab", f"{s}", {"ab": 1}.get(s), x
target = f
def steps(f):
    for i in range(2):
        yield attempt(f, torch.ones(2))
    S.__add__ = lambda a, b: "add"
    yield attempt(f, torch.ones(2))
    S.__format__ = lambda a, b: "fmt"
    yield attempt(f, torch.ones(2))
    S.__eq__ = lambda a, b: False
    S.__hash__ = lambda a: 3
    yield attempt(f, torch.ones(2))
    S.__len__ = lambda a: 9
    yield attempt(f, torch.ones(2))
""",
    "int_subclass_arg": """
import torch
class I(int): pass
def f(x, i):
    return x * i, i + 1, i == 2, bool(i)
target = f
def steps(f):
    i = I(2)
    for _ in range(2):
        yield attempt(f, torch.ones(2), i)
    I.__add__ = lambda a, b: 50
    yield attempt(f, torch.ones(2), i)
    I.__bool__ = lambda a: False
    yield attempt(f, torch.ones(2), i)
    I.__mul__ = I.__rmul__ = lambda a, b: 50
    yield attempt(f, torch.ones(2), i)
    i.extra = 3
    yield attempt(f, torch.ones(2), i)
""",
    "property_added_over_instance": """
import torch
class P: pass
p = P(); p.a = 1
def f(x):
    return x * p.a
target = f
def steps(f):
    for i in range(2):
        yield attempt(f, torch.ones(2))
    P.a = property(lambda s: 5)
    yield attempt(f, torch.ones(2))
    del P.a
    yield attempt(f, torch.ones(2))
    class Desc:
        def __get__(self, o, t): return 6
    P.a = Desc()
    yield attempt(f, torch.ones(2))
    Desc.__set__ = lambda *a: None
    yield attempt(f, torch.ones(2))
""",
    "getattribute_added": """
import torch
class P: pass
p = P(); p.a = 1
def f(x):
    return x * p.a
target = f
def steps(f):
    for i in range(2):
        yield attempt(f, torch.ones(2))
    P.__getattribute__ = lambda s, n: 5
    yield attempt(f, torch.ones(2))
""",
    "setattr_added": """
import torch
class P: pass
p = P(); p.a = 1
def f(x):
    p.a = p.a + 1
    return x * p.a
target = f
def steps(f):
    for i in range(3):
        yield attempt(f, torch.ones(2))
    P.__setattr__ = lambda s, n, v: object.__setattr__(s, n, v * 2)
    yield attempt(f, torch.ones(2))
    yield p.a
    P.__delattr__ = lambda s, n: None
    yield attempt(f, torch.ones(2))
    yield p.a
""",
    "instancecheck_added": """
import torch
class M(type): pass
class P(metaclass=M): pass
def f(x):
    return isinstance(3, P), issubclass(int, P), x
target = f
def steps(f):
    for i in range(2):
        yield attempt(f, torch.ones(2))
    M.__instancecheck__ = lambda c, o: True
    yield attempt(f, torch.ones(2))
    M.__subclasscheck__ = lambda c, o: True
    yield attempt(f, torch.ones(2))
""",
    "new_added": """
import torch
class P: pass
def f(x):
    p = P()
    return type(p).__name__, x
target = f
def steps(f):
    for i in range(2):
        yield attempt(f, torch.ones(2))
    P.__new__ = lambda c: 3
    yield attempt(f, torch.ones(2))
""",
    "init_added": """
import torch
class P: pass
def f(x):
    p = P()
    return vars(p), x
target = f
def steps(f):
    for i in range(2):
        yield attempt(f, torch.ones(2))
    P.__init__ = lambda s: setattr(s, "z", 4)
    yield attempt(f, torch.ones(2))
""",
    "meta_call_added": """
import torch
class M(type): pass
class P(metaclass=M): pass
def f(x):
    return type(P()).__name__, x
target = f
def steps(f):
    for i in range(2):
        yield attempt(f, torch.ones(2))
    M.__call__ = lambda c: 5
    yield attempt(f, torch.ones(2))
""",
    "del_added": """
import torch
log = []
class P: pass
def f(x):
    p = P()
    del p
    return x * 2
target = f
def steps(f):
    for i in range(2):
        yield attempt(f, torch.ones(2))
    P.__del__ = lambda s: log.append(1)
    yield attempt(f, torch.ones(2))
    yield len(log)
    yield attempt(f, torch.ones(2))
    yield len(log)
""",
    "await_iter": """
import torch
class P:
    def __aiter__(self): return self
    async def __anext__(self): raise StopAsyncIteration
p = P()
async def g(x):
    n = 0
    async for q in p:
        n += q
    return x * n
def f(x):
    try:
        g(x).send(None)
    except StopIteration as e:
        return e.value
target = f
def steps(f):
    for i in range(2):
        yield attempt(f, torch.ones(2))
    it = iter([1, 2, 3])
    async def nxt(self):
        for v in it: return v
        raise StopAsyncIteration
    P.__anext__ = nxt
    yield attempt(f, torch.ones(2))
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_a_class_gets_is_seen(name):
    report = fuzz.report_on(PROGRAMS[name], 0)
    assert report.finding is None
    assert bool(report.hits) is (name not in NO_HITS), report.reasons


#: (what the call does, the name of torch.Tensor that is another one afterwards, what it is then).
OF_TENSORS = [
    ("x + 1", "__add__", "lambda s, o: torch.ones(3)"),
    ("1 + x", "__radd__", "lambda s, o: torch.ones(3)"),
    ("x[0]", "__getitem__", "lambda s, o: torch.ones(3)"),
    ("len(x)", "__len__", "lambda s: 7"),
    ("x if x.sum() else x + 1", "__bool__", "lambda s: False"),
    ("-x", "__neg__", "lambda s: torch.ones(3)"),
    ("x @ x", "__matmul__", "lambda s, o: torch.ones(3)"),
    ("x.relu()", "relu", "lambda s: torch.ones(3)"),
    ("x == 1", "__eq__", "lambda s, o: 5"),
    ("float(x[0])", "__float__", "lambda s: 9.0"),
    ("int(x[0])", "__int__", "lambda s: 9"),
    ("f'{x[0]:.1f}'", "__format__", "lambda s, f: 'q'"),
    ("str(x)", "__repr__", "lambda s, **k: 'q'"),
    ("list(x)", "__iter__", "lambda s: iter([1])"),
    ("1 in x", "__contains__", "lambda s, o: False"),
    ("x.shape", "shape", "property(lambda s: 5)"),
    ("x.mean()", "mean", "lambda s: torch.ones(3)"),
    ("torch.mean(x)", "mean", "lambda s: torch.ones(3)"),
    ("x.to(torch.float64)", "to", "lambda s, d: s"),
    ("bool(x[0])", "__bool__", "lambda s: False"),
    ("x.item() if x.dim() == 0 else x.sum().item()", "item", "lambda s: 4"),
    ("x.T", "T", "property(lambda s: 3)"),
    ("x.new_zeros(2)", "new_zeros", "lambda s, n: 3"),
    ("x.size(0)", "size", "lambda s, n: 8"),
    ("[*x]", "__iter__", "lambda s: iter([1])"),
    ("max(x, x)", "__gt__", "lambda s, o: 1/0"),
    ("sum([x, x])", "__radd__", "lambda s, o: torch.ones(3)"),
    ("abs(x)", "__abs__", "lambda s: 3"),
    ("x ** 2", "__pow__", "lambda s, o: 3"),
    ("round(x[0])", "__round__", "lambda s: 3"),
    ("np.asarray(x)", "__array__", "lambda s, *a, **k: np.ones(2)"),
    ("hash(x) == 3", "__hash__", "lambda s: 3"),
    ("x.device.type", "device", "property(lambda s: torch.device('meta'))"),
    ("isinstance(x, torch.Tensor)", "zzz", "1"),
    ("x.requires_grad", "requires_grad", "property(lambda s: 4)"),
    ("x.data", "data", "property(lambda s: 4)"),
    ("x.grad", "grad", "property(lambda s: 4)"),
    ("range(3)[x[0].long()]", "__index__", "lambda s: 2"),
    ("copy.deepcopy(x)", "__deepcopy__", "lambda s, m: 5"),
    ("x.unknown if hasattr(x, 'unknown') else 0", "unknown", "4"),
    ("x.__class__.__name__", "__class__", "property(lambda s: int)"),
]


@pytest.mark.parametrize(("does", "name", "new"), OF_TENSORS, ids=lambda p: p[:30])
def test_what_the_class_of_tensors_gets_is_seen(does, name, new):
    report = fuzz.report_on(
        f"""
import torch, numpy as np, copy
KEPT = vars(torch.Tensor).get("{name}", "absent")
def f(x):
    return {does}, 3
target = f
def steps(f):
    x = torch.ones(2)
    got = [str(attempt(f, x)) for _ in range(2)]
    torch.Tensor.{name} = {new}
    try:
        r = [attempt(f, x) for _ in range(2)]
    finally:
        if KEPT == "absent":
            del torch.Tensor.{name}
        else:
            torch.Tensor.{name} = KEPT
    got += [str(q) for q in r]
    got.append(str(attempt(f, x)))
    yield got
""",
        0,
    )
    assert report.finding is None
    refused = does in ("max(x, x)", "copy.deepcopy(x)", "np.asarray(x)")  # that one raises
    assert report.hits or (refused and report.reasons), report.reasons
