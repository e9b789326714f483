"""Outside state of every kind, read by everything that reads, and changed between the calls.

Owns: one expression a line over the objects of a world `S`; each is evaluated twice after every change
of the world, eagerly and compiled. A read that nobody saw would give what it gave before the change.
Does not own programs that change the world themselves (effects/test_order_of_effects.py).

PYTEST_DONT_REWRITE: the programs must be what they look like.
"""

# ruff: noqa: E501

import array
import collections
import contextlib
import contextvars
import dataclasses
import enum
import functools
import io
import os
import re
import sys
import types
import weakref

import numpy as np
import pytest
import torch

import magpy
from tests.soundness.number_sources import describe

IMPORTS = "import array, bisect, collections, copy, dataclasses, functools, heapq, io, itertools, json, math, operator, os, random, re, statistics, string, struct, sys, types, warnings, torch\nimport numpy as np"
EXPRESSIONS = r"""
max(S.L)
sum(map(S.D.get, ['a', 'b']))
max(S.D, key=S.D.get)
sorted(['a', 'b'], key=S.D.get)
list(map(S.L.count, [1, 2]))
list(map(S.L.__getitem__, [0, 1]))
functools.partial(max, S.L)()
list(map(functools.partial(operator.contains, S.L), [1, 5]))
S.P()
S.P2(1)
repr({'k': S.L})
repr([{'k': (S.L,)}])
str(collections.deque([S.L]))
json.dumps({'k': {'m': S.NL}})
copy.deepcopy({'a': S.NL})
copy.copy(S.NL)
sum(itertools.chain(*S.NL))
sum(itertools.chain.from_iterable(S.NL))
list(itertools.chain(S.L, S.Q))
max({'a': S.L}.values())
list(zip(S.L, S.Q))
sum(S.Q)
S.Q[-1]
len(S.ST)
sorted(S.ST)
3 in S.ST
S.ST & {1, 3}
{1, 3} - S.ST
bytes(S.BA)
S.BA[0]
S.BA.decode()
int.from_bytes(S.BA, 'big')
memoryview(S.BA)[0]
''.join(map(str, S.L))
'%s' % S.L
'%s' % (S.L,)
'%(a)s' % S.D
'{a}'.format(**S.D)
'{0[a]}'.format(S.D)
'{0.L}'.format(S)
f'{S.L}'
f'{S.D["a"]}'
[*S.L, *S.Q]
{**S.D}
{*S.ST}
(lambda *a, **k: (a, sorted(k.items())))(*S.L, **S.D)
operator.itemgetter(1)(S.L)
operator.itemgetter('a')(S.D)
operator.attrgetter('L')(S)
operator.attrgetter('N.v')(S)
operator.methodcaller('count', 1)(S.L)
operator.methodcaller('get', 'a')(S.D)
getattr(S.N, 'v')
vars(S.N)['v']
S.N.__dict__['v']
S.N.__dict__.get('v')
list(vars(S.N).values())
dict(vars(S.N))
S.E.value
S.OD.popitem and list(S.OD)
next(iter(S.OD))
next(reversed(S.OD))
list(S.D)
list(S.D.values())
S.D | {'z': 1}
{'z': 1} | S.D
S.D == {'a': 1, 'b': 2}
S.L == [1, 2, 3]
[S.L] == [[1, 2, 3]]
S.L < [1, 2, 4]
S.L + [9]
S.L * 2
S.L[1:]
S.L[-1]
S.L.index(3) if 3 in S.L else -1
S.L[S.L[0]]
S.DD['q']
S.DD.get('q')
S.C['a']
S.C.most_common(1)
S.CM['a']
len(S.CM)
S.MP['a']
list(S.MP)
S.W().v
S.W() is None
list(S.WD.items())
len(S.WS)
S.A.sum()
S.A[0]
S.A.tolist()
float(S.A[1])
S.AR[0]
S.AR.tolist()
sum(S.AR)
S.NS.v
repr(S.NS)
S.NT.x
S.DC.x
repr(S.DC)
S.DC == S.DC2
dataclasses.asdict(S.DC)
dataclasses.replace(S.DC, y=1)
statistics.mean(S.L)
heapq.nlargest(1, S.L)
bisect.bisect(S.L, 2)
functools.reduce(operator.add, S.L)
any(v > 3 for v in S.L)
all(map((5).__gt__, S.L))
math.fsum(S.L)
math.prod(S.L)
struct.pack('3b', *S.L[:3])
array.array('i', S.L)
np.array(S.L)
np.array(S.NL)
torch.tensor(S.L)
torch.tensor(S.NL)
torch.tensor(S.Q)
torch.zeros(S.L[0])
torch.zeros(*S.L[:2])
t.reshape(S.R)
t[S.L[0] % 3]
t[S.M]
t * S.N.v
t.sum() + sum(S.D.values())
isinstance(3, S.T)
issubclass(bool, S.T)
str(S.P)
S.P.keywords
S.P.args
S.G.get()
os.environ.get('MAGPY_TEST_X')
os.environ['MAGPY_TEST_X']
os.getenv('MAGPY_TEST_X', 'd')
'MAGPY_TEST_X' in os.environ
'magpy_fake' in sys.modules
sys.modules.get('magpy_fake')
sys.getrecursionlimit()
sys.argv[-1]
sys.flags.optimize
sys.path[-1]
warnings.filters[0][0]
torch.get_default_dtype()
torch.tensor(1.5)
torch.is_grad_enabled()
torch.get_num_threads()
re.compile(S.PAT).findall('aXbY')
string.Template('$a').substitute(S.D)
S.CV.get()
S.I
list(S.IT)
list(S.GEN())
S.F(3)
S.F.__defaults__
S.F.__name__
S.K.v
S.K().v
S.K.__name__
S.K.__mro__[1].__name__
S.K2.v
type(S.X).__name__
S.X.v
isinstance(S.X, S.K)
S.ST.isdisjoint({3})
S.FS == frozenset([1])
S.D.keys() & {'a', 'c'}
S.D.items() >= {('a', 1)}
sum(1 for _ in S.D)
min(S.D.items())
S.D.copy()
S.L.copy()
S.L[:]
list(reversed(S.L))
list(enumerate(S.L))
tuple(S.L)
set(S.L)
dict(S.PAIRS)
dict(zip(S.L, S.L))
collections.Counter(S.L)
collections.OrderedDict(S.PAIRS)
collections.deque(S.L, 2)
collections.ChainMap(S.D)['a']
types.MappingProxyType(S.D)['a']
types.SimpleNamespace(**S.D).a
random.Random(S.L[0]).random()
io.StringIO(str(S.L)).read()
(lambda it: next(it))(iter(S.L))
(lambda x, *y: x)(*S.L)
(lambda a, b, *c: c)(*S.L)
[x for x in S.L if x in S.ST]
t.to(S.DT)
t.clamp(max=S.L[0])
t.new_tensor(S.L)
torch.nn.functional.pad(t, S.PADL)
t.permute(*S.PERM)
print(S.L)
print(S.ST)
print(*S.L)
print(S.BA)
print(S.Q, S.D, S.OD)
print(S.NL)
print(S.NS)
"""
LINES = [line for line in EXPRESSIONS.split("\n") if line]


def mutations(S):
    yield
    S.L.append(7)
    S.L[0] = 2
    S.L[2] = 4
    S.D["a"] = 10
    S.D["c"] = 3
    S.Q.append(8)
    S.ST.add(3)
    S.BA[0] = 66
    S.NL[0].append(5)
    S.NL.append([1])
    S.N.v = 3.5
    S.OD.move_to_end("p")
    S.DD["q"] = 5
    S.C["b"] += 9
    S.CM.maps[0]["a"] = 4
    S.MPD["a"] = 4
    S.MPD["n"] = 1
    S.A[0] = 9
    S.AR[0] = 9
    S.NS.v = 9
    S.NT = S.NT._replace(x=9)
    S.DC.x = 9
    S.M[0] = False
    S.R[0] = 3
    S.T = (str,)
    S.P = functools.partial(max, S.L, 5)
    S.G.v = 2
    os.environ["MAGPY_TEST_X"] = "b"
    sys.modules["magpy_fake"] = 1
    S.PAT = "[A-Z]"
    S.CV.set(2)
    S.I += 1
    S.F.__defaults__ = (5,)
    S.K.v = 5
    S.K2.__bases__[0].v = 6
    S.X.__class__ = S.K3
    S.FS = frozenset([1, 2])
    S.PAIRS.append(("z", 1))
    S.DT = torch.float64
    S.PADL[0] = 1
    S.E = S.EE.B
    S.WD["k2"] = S.K()
    S.WS.add(S.N)
    torch.set_default_dtype(torch.float64)
    sys.path.append("zzz")
    sys.argv.append("q")
    S.keep = S.WD["k2"] if "k2" in S.WD else None
    yield
    S.NL[0].pop()
    S.L.sort(reverse=True)
    S.Q.popleft()
    S.ST.discard(1)
    S.ST.add(10)
    S.BA.extend(b"z")
    S.D.pop("a")
    S.D["a"] = 2
    S.OD["n"] = 1
    S.N = type(S.N)()
    S.N.v = 1.25
    S.W = weakref.ref(S.N)
    S.DC.y = 5
    torch.set_default_dtype(torch.float32)
    yield
    S.L[:] = [1, 2, 3]
    S.D.clear()
    S.D.update(a=1, b=2)
    os.environ.pop("MAGPY_TEST_X")
    sys.modules.pop("magpy_fake")
    sys.path.pop()
    sys.argv.pop()
    yield


class V:
    pass


@dataclasses.dataclass
class DC_:
    x: int = 1
    y: int = 2


class EE_(enum.Enum):
    A = 1
    B = 2


def world():
    S = V()
    S.L = [1, 2, 3]
    S.D = {"a": 1, "b": 2}
    S.Q = collections.deque([1, 2])
    S.ST = {1, 2}
    S.BA = bytearray(b"abc")
    S.NL = [[1], [2]]
    S.N = V()
    S.N.v = 2.5
    S.OD = collections.OrderedDict(p=1, q=2)
    S.DD = collections.defaultdict(int)
    S.C = collections.Counter("aab")
    S.CM = collections.ChainMap({"a": 1}, {"b": 2})
    S.MPD = {"a": 1}
    S.MP = types.MappingProxyType(S.MPD)
    S.W = weakref.ref(S.N)
    S.WD = weakref.WeakValueDictionary()
    S.WS = weakref.WeakSet()
    S.A = np.array([1.0, 2.0])
    S.AR = array.array("i", [1, 2])
    S.NS = types.SimpleNamespace(v=1)
    S.NT = collections.namedtuple("NT", "x y")(1, 2)
    S.DC = DC_()
    S.DC2 = DC_()
    S.M = [True, False, True]
    S.R = [3]
    S.T = (int,)
    S.P = functools.partial(max, S.L)
    S.P2 = functools.partial(lambda a, b: a[0] + b, S.L)

    class G_:
        v = 1

        def get(self):
            return self.v

    S.G = G_()
    S.PAT = "[a-z]"
    S.CV = contextvars.ContextVar("cv", default=1)
    S.I = 1
    S.IT = [1, 2]
    S.GEN = lambda: iter(S.L)

    def F(x, y=2):
        return x + y

    S.F = F

    class B_:
        v = 1

    class K(B_):
        pass

    class K3(B_):
        v = 8

    class B2_:
        v = 1

    class K2(B2_):
        pass

    S.K = K
    S.K2 = K2
    S.K3 = K3
    S.X = K()
    S.FS = frozenset([1])
    S.PAIRS = [("a", 1)]
    S.DT = torch.float32
    S.PADL = [0, 1]
    S.PERM = [0]
    S.EE = EE_
    S.E = EE_.A
    return S


def results(line, compile):
    S = world()
    os.environ["MAGPY_TEST_X"] = "a"
    names = {"S": S}
    exec(f"{IMPORTS}\ndef f(t):\n    return {line}", names)
    f = compile(names["f"])
    seen = []
    for _ in mutations(S):
        for _ in range(2):
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                try:
                    result = f(torch.tensor([1.0, 2.0, 3.0]))
                except Exception as error:
                    result = error
            seen.append(re.sub("0x[0-9a-f]+", "", str((describe(result), printed.getvalue()))))
    return seen


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(8))
def test_a_read_of_the_outside_is_never_stale(part):
    wrong = []
    for line in LINES[part::8]:
        want = results(line, lambda f: f)
        got = results(line, lambda f: magpy.compile(f, backend="eager"))
        if got != want:
            wrong.append((line, want, got))
    assert not wrong, wrong[0]
