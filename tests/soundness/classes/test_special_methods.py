"""Special methods that a class gains or loses between calls, at each way to ask for them.

Owns the instructions and C functions that find a special method or its absence: of an object's
class, of a base of that, and of a class's metaclass.  Does not own what the methods do.
"""

from __future__ import annotations

import pytest
import torch

import magpy
from tests.comparison import assert_same


def iterator_of(value):
    return value
    yield


def drive(coroutine):
    try:
        while True:
            coroutine.send(None)
    except StopIteration as e:
        return e.value


async def a_enter(self):
    return 5


async def a_exit(self, *error):
    return None


async def a_next(self):
    self.n = getattr(self, "n", 0) + 1
    if self.n > 2:
        self.n = 0
        raise StopAsyncIteration
    return self.n


#: How an object is used, and the methods that it needs.
USES = {
    "await": (
        "async def g():\n        return await O\n    r=drive(g())",
        {"__await__": "lambda s: iterator_of(7)"},
    ),
    "asyncwith": (
        "async def g():\n        async with O as v: return v\n    r=drive(g())",
        {"__aenter__": "a_enter", "__aexit__": "a_exit"},
    ),
    "asyncfor": (
        "async def g():\n        return [v async for v in O]\n    r=drive(g())",
        {"__aiter__": "lambda s:s", "__anext__": "a_next"},
    ),
    "with": ("with O as v: r=v", {"__enter__": "lambda s:3", "__exit__": "lambda s,*a:None"}),
    "for": ("r=[v for v in O]", {"__iter__": "lambda s:iter((1,2))"}),
    "forgetitem": ("r=[v for v in O]", {"__getitem__": "lambda s,i:[1,2][i]"}),
    "unpack": ("a,b=O; r=(b,a)", {"__iter__": "lambda s:iter((1,2))"}),
    "star": ("r=[*O]", {"__iter__": "lambda s:iter((1,2))"}),
    "starcall": ("r=max(*O)", {"__iter__": "lambda s:iter((1,2))"}),
    "kw": ("r=dict(**O)", {"keys": "lambda s:['a']", "__getitem__": "lambda s,i:1"}),
    "dictup": ("r={**O}", {"keys": "lambda s:['a']", "__getitem__": "lambda s,i:1"}),
    "getitem": ("r=O[1]", {"__getitem__": "lambda s,i:i"}),
    "setitem": ("O[1]=2; r=1", {"__setitem__": "lambda s,i,v:LOG.append((i,v))"}),
    "delitem": ("del O[1]; r=1", {"__delitem__": "lambda s,i:LOG.append(i)"}),
    "call": ("r=O(1)", {"__call__": "lambda s,i:i"}),
    "add": ("r=O+1", {"__add__": "lambda s,i:i"}),
    "radd": ("r=1+O", {"__radd__": "lambda s,i:i"}),
    "iadd": ("q=O; q+=1; r=q", {"__iadd__": "lambda s,i:i"}),
    "neg": ("r=-O", {"__neg__": "lambda s:4"}),
    "inv": ("r=~O", {"__invert__": "lambda s:4"}),
    "in": ("r=1 in O", {"__contains__": "lambda s,i:True"}),
    "initer": ("r=1 in O", {"__iter__": "lambda s:iter((1,2))"}),
    "lt": ("r=O<1", {"__lt__": "lambda s,o:True"}),
    "gtr": ("r=1>O", {"__lt__": "lambda s,o:True"}),
    "eq": ("r=O==1", {"__eq__": "lambda s,o:True"}),
    "bool": ("r=1 if O else 2", {"__bool__": "lambda s:False"}),
    "boollen": ("r=1 if O else 2", {"__len__": "lambda s:0"}),
    "not": ("r=not O", {"__len__": "lambda s:0"}),
    "len": ("r=len(O)", {"__len__": "lambda s:5"}),
    "int": ("r=int(O)", {"__int__": "lambda s:5"}),
    "intidx": ("r=int(O)", {"__index__": "lambda s:5"}),
    "inttrunc": ("r=int(O)", {"__trunc__": "lambda s:5"}),
    "float": ("r=float(O)", {"__float__": "lambda s:5."}),
    "floatidx": ("r=float(O)", {"__index__": "lambda s:5"}),
    "complex": ("r=complex(O)", {"__complex__": "lambda s:5j"}),
    "index": ("r=[1,2,3][O]", {"__index__": "lambda s:1"}),
    "slice": ("r=[1,2,3][:O]", {"__index__": "lambda s:1"}),
    "range": ("r=list(range(O))", {"__index__": "lambda s:1"}),
    "round": ("r=round(O)", {"__round__": "lambda s,n=None:1"}),
    "abs": ("r=abs(O)", {"__abs__": "lambda s:1"}),
    "floor": ("r=math.floor(O)", {"__floor__": "lambda s:1"}),
    "divmod": ("r=divmod(O,2)", {"__divmod__": "lambda s,o:1"}),
    "pow": ("r=pow(O,2)", {"__pow__": "lambda s,o:1"}),
    "hash": ("r=hash(O)==1", {"__hash__": "lambda s:1"}),
    "str": ("r=str(O)=='q'", {"__str__": "lambda s:'q'"}),
    "repr": ("r=f'{O!r}'=='q'", {"__repr__": "lambda s:'q'"}),
    "fmt": ("r=f'{O:x}'", {"__format__": "lambda s,f:f"}),
    "bytes": ("r=bytes(O)", {"__bytes__": "lambda s:b'1'"}),
    "rev": ("r=list(reversed(O))", {"__reversed__": "lambda s:iter((1,2))"}),
    "iter": ("r=iter(O)", {"__iter__": "lambda s:iter(())"}),
    "sum": ("r=sum(O)", {"__iter__": "lambda s:iter((1,2))"}),
    "list": ("r=list(O)", {"__iter__": "lambda s:iter((1,2))"}),
    "match": (
        "match O:\n        case {'a':1}: r=1\n        case [a,b]: r=2\n        case _: r=0",
        {"keys": "lambda s:['a']"},
    ),
    "raise": ("raise O", {"__call__": "lambda s:1"}),
    "yieldfrom": (
        "def g():\n        yield from O\n    r=list(g())",
        {"__iter__": "lambda s:iter((1,2))"},
    ),
    "class": ("class Q(O): pass\n    r=Q.__bases__==()", {"__mro_entries__": "lambda s,b:()"}),
    "getattr": ("r=O.zz", {"__getattr__": "lambda s,n:n"}),
    "setattr": ("O.zz=1; r=O.__dict__.get('zz')", {"__setattr__": "lambda s,n,v:LOG.append(n)"}),
    "delattr": (
        "r=hasattr(O,'zz')\n    try: del O.zz\n    except AttributeError: r=3",
        {"__delattr__": "lambda s,n:LOG.append(n)"},
    ),
    "isinst": ("r=isinstance(1,O)", {"__instancecheck__": "lambda s,o:True"}),
    "issub": ("r=issubclass(int,O)", {"__subclasscheck__": "lambda s,o:True"}),
    "mat": ("r=O@x", {"__matmul__": "lambda s,o:1"}),
    "rmat": ("r=x@O", {"__rmatmul__": "lambda s,o:1"}),
    "tadd": ("r=x+O", {"__radd__": "lambda s,o:1"}),
    "tidx": ("r=x[O]", {"__index__": "lambda s:1"}),
    "tens": ("r=torch.tensor(O)", {"__float__": "lambda s:1.", "__index__": "lambda s:1"}),
    "tf": ("r=torch.sum(O)", {"__torch_function__": "classmethod(lambda c,f,t,a=(),k=None:1)"}),
    "npa": ("r=np.asarray(O).shape", {"__array__": "lambda s,dtype=None,copy=None:np.ones(2)"}),
    "npl": (
        "r=np.asarray(O).shape",
        {"__len__": "lambda s:2", "__getitem__": "lambda s,i:[1,2][i]"},
    ),
    "deepc": ("r=type(copy.deepcopy(O)).__name__", {"__deepcopy__": "lambda s,m:1"}),
    "copyred": ("r=type(copy.copy(O)).__name__", {"__reduce__": "lambda s:(int,())"}),
    "getstate": ("r=copy.copy(O).__dict__", {"__getstate__": "lambda s:{'z':1}"}),
    "fspath": ("r=os.fspath(O)", {"__fspath__": "lambda s:'p'"}),
    "set": ("r={O} and 1", {"__hash__": "lambda s:1"}),
    "inset": ("r=O in {1}", {"__eq__": "lambda s,o:True", "__hash__": "lambda s:1"}),
    "sorted": ("r=sorted([O,O]) and 1", {"__lt__": "lambda s,o:False"}),
    "max": ("r=max(O,1)==1", {"__gt__": "lambda s,o:True", "__lt__": "lambda s,o:True"}),
    "exitstack": (
        "with contextlib.ExitStack() as s: r=s.enter_context(O)",
        {"__enter__": "lambda s:3", "__exit__": "lambda s,*a:None"},
    ),
    "anext": (
        "async def g():\n        return await anext(O)\n    r=drive(g())",
        {"__anext__": "a_next"},
    ),
    "aiter": ("r=aiter(O) is O", {"__aiter__": "lambda s:s", "__anext__": "a_next"}),
}
PLACES = ["class", "base", "metaclass"]


def calls(name, place, gains, compile):
    """What calls give before the methods are there, while they are, and afterwards."""
    body, methods = USES[name]
    scope = {k: v for k, v in globals().items() if not k.startswith("test_")} | {"LOG": []}
    exec("class Meta(type): pass\nclass B: pass\nclass C(B, metaclass=Meta): pass", scope)
    exec(f"def f(x):\n    {body}\n    return x * 2, r", scope)
    scope["O"] = scope["C"] if place == "metaclass" else scope["C"]()
    host = scope[{"class": "C", "base": "B", "metaclass": "Meta"}[place]]

    def put(there):
        for method, text in methods.items():
            if there:
                setattr(host, method, eval(text, scope))
            elif method in vars(host):
                delattr(host, method)

    put(not gains)
    c = compile(scope["f"])
    seen = []
    for i in range(9):
        if i in (3, 6):
            put((i == 3) is gains)
        try:
            result = c(torch.ones(2))
        except Exception as e:  # noqa: BLE001 - whatever the object's use raises
            result = type(e), str(e)
        if isinstance(result, tuple) and type(result[-1]).__name__.endswith("iterator"):
            result = *result[:-1], type(result[-1])
        seen.append(result)
    return seen, scope["LOG"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", USES)
def test_what_is_gained_and_lost_is_seen(name):
    for place in PLACES:
        for gains in (True, False):
            eager = calls(name, place, gains, lambda f: f)
            compiled = calls(name, place, gains, lambda f: magpy.compile(f, backend="eager"))
            assert_same(compiled, eager)
            magpy.reset()
