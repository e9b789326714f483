"""Programs from tables: everything that a call changes, and everything that then looks at it.

Owns the tables and the texts of the programs.  Random programs (tests/fuzz/grammar.py) come to such
a pair seldom; here each comes once.  Run by tests/fuzz/test_programs.py.
"""

from __future__ import annotations

# What there is: how it is made, how the call changes it (with `n`, an argument that differs), and
# two changes that others make between the calls.
KINDS = {
    "list": ("[1, 2]", "X.append(n)", "X.clear()", "X.append('q')"),
    "tensors": ("[1]", "X.append(t * n)", "del X[1:]", "X.insert(0, 3)"),
    "dict": ("{'a': 1}", "X['b'] = n", "X.clear()", "X.update(c=2)"),
    "floats": ("{'a': 0.5}", "X['a'] = float(t.sum()) + n", "X['a'] = 2.5", "X.update(c=2)"),
    "set": ("{1}", "X.add(n)", "X.clear()", "X.add('z')"),
    "deque": ("collections.deque([1], maxlen=3)", "X.append(n)", "X.clear()", "X.extend([7, 8])"),
    "ordered": ("collections.OrderedDict(a=1)", "X['a'] = n", "X.clear()", "X['d'] = 4"),
    "counter": ("collections.Counter('ab')", "X['a'] += n", "X.clear()", "X['b'] += 5"),
    "default": (
        "collections.defaultdict(list)",
        "X['a'].append(n)",
        "X.clear()",
        "X['b'].append(1)",
    ),
    "object": ("Thing(1)", "X.n = n", "X.n = 0", "X.n = 'text'"),
    "counts": ("Thing(1)", "X.n += 1", "X.n = 7", "X.m = 3"),
    "holds": ("Thing(1)", "X.n = t.sum()", "X.n = 7", "X.m = 3"),
    "dataclass": ("Data(1)", "X.n += n", "X.n = 7", "X.t = [1]"),
    "nested": (
        "[Thing(1), {'k': [2]}]",
        "X[1]['k'].append(n); X[0].n += 1",
        "X[1]['k'].clear()",
        "X[0].n = -1",
    ),
    "tuple": ("([1], Thing(2))", "X[0].append(n)", "X[0].clear()", "X[1].n = 9"),
    "named": ("Point([1], 2)", "X.x.append(n)", "X.x.clear()", "X.x.append('w')"),
    "exception": ("ValueError('a', 1)", "X.args = (n,)", "X.args = ()", "X.args = ('q', 2)"),
    "bytes": ("bytearray(b'ab')", "X.append(n + 60)", "X.clear()", "X.extend(b'zz')"),
    "array": ("np.arange(3.0)", "Y.append(n)", "X[0] = 5", "X[1] = 7"),
    "class": ("Thing", "X.k = n", "X.k = 0", "X.k = 'e'"),
    "metaclass": ("Odd", "X.k = n", "X.k = 0", "X.k = 'e'"),
    "inherits": ("Sub([1])", "X.append(n)", "X.clear()", "X.append('e')"),
    "formats": ("Fmt(1)", "X.n += n", "X.n = 0", "X.n = 5"),
    "frozen": (
        "[frozenset([1]), (1, [2])]",
        "X[1][1].append(n)",
        "X[1][1].clear()",
        "X[0] = frozenset([5, 6])",
    ),
    "deep": (
        "{'a': [{'b': (1, [2, 3])}]}",
        "X['a'][0]['b'][1].append(n)",
        "X['a'][0]['b'][1].clear()",
        "X['a'].append(4)",
    ),
    "userdict": ("collections.UserDict(a=1)", "X['b'] = n", "X.data.clear()", "X['c'] = 3"),
    "userlist": ("collections.UserList([1])", "X.append(n)", "X.data.clear()", "X.append(3)"),
    "namespace": ("types.SimpleNamespace(a=1)", "X.b = n", "X.a = 0", "X.c = 3"),
    "chain": (
        "collections.ChainMap({'a': 1}, {'b': 2})",
        "X['b'] = n",
        "X.maps[1]['z'] = 1",
        "X['c'] = 3",
    ),
    "partial": (
        "functools.partial(max, 1)",
        "X.keywords['default'] = n",
        "X.keywords.clear()",
        "X.k = 3",
    ),
    "numbers": ("array.array('d', [1, 2])", "Y.append(n)", "X[0] = 9", "X.append(4)"),
    "iterator": ("[iter([1, 2])]", "X.append(n)", "X[0] = 3", "X.append(3)"),
    "slots": ("Slot(1)", "X.n = n", "X.n = 0", "X.n = 8"),
    "property": ("Prop([1])", "X.v.append(n)", "X.v.clear()", "X.v.append('e')"),
    "enum": ("[E.a, E.b]", "X.append(n)", "X.clear()", "X.append(E.c)"),
    "proxy": ("types.MappingProxyType(Z)", "Z['b'] = n", "Z.clear()", "Z['q'] = 1"),
    "path": (
        "[pathlib.PurePath('a')]",
        "X[0] = X[0] / str(n)",
        "X[0] = pathlib.PurePath('q')",
        "X.append(1)",
    ),
    "keys": ("Z.keys()", "Z['b'] = n", "Z.clear()", "Z['q'] = 1"),
    "memory": ("memoryview(W)", "W[0] = n", "W[0] = 8", "W[1] = 9"),
}

# What looks at it.
LOOKS = [
    *("str(X)", "repr([X])", "'%s|%r' % (X, [X])", "'{} {!r}'.format(X, X)", "f'{X!s:>12}'"),
    *("bool(X)", "len(X)", "sorted(X, key=str)", "list(X)", "(X, tuple(X))", "max(X, key=str)"),
    *("sum(X)", "n in X", "1 in X", "X == AGAIN", "[X] == [copy.copy(X)]", "X != 3", "hash(X)"),
    *("copy.copy(X)", "copy.deepcopy(X)", "pickle.loads(pickle.dumps(X))"),
    *("json.dumps(X, default=str)", "dict(X)", "set(X)", "list(reversed(X))", "list(enumerate(X))"),
    *("list(zip(X, X))", "next(iter(X))", "any(X)", "all(X)", "','.join(map(str, X))"),
    *("list(map(str, X))", "list(filter(None, X))", "[*X]", "{**X}", "g(*X)", "h(**X)"),
    *("list(itertools.chain(X, X))", "list(itertools.islice(X, 1, None))"),
    *("operator.itemgetter(0)(X)", "X[0]", "X[-1]", "X[0:2]"),
    *("isinstance(X, dict) and X.get('b')", "vars(X)", "dict(vars(X))", "getattr(X, 'n', 5)"),
    *("sorted(vars(X).items(), key=str)", "list(X.items())", "list(X.values())"),
    *("{k: v for k, v in X.items()}", "[v for v in X]"),
    *("functools.reduce(lambda a, b: str(a) + str(b), X)", "math.prod(X)"),
    *(
        "torch.tensor(list(X))",
        "torch.as_tensor(X)",
        "torch.stack([torch.as_tensor(v) for v in X])",
    ),
    *("int(X)", "float(X)", "X + X", "X * 2", "collections.Counter(map(str, X))"),
    *("pprint.pformat(X)", "bytes(X)", "min(len(str(v)) for v in X)"),
    *("heapq.nsmallest(1, X, key=str)", "statistics.mean(X)", "operator.length_hint(X)"),
    *("string.Template('$a').substitute(X)", "tuple(sorted(map(str, X)))[::-1]", "X is Y"),
    *("X | {'zz': 3}", "X & {1}", "X.copy()", "X.count(n)", "X.index(n)"),
    *("str(type(X)) + str(len(X))", "np.asarray(X)", "np.sum(list(X))"),
    *("iter(X).__length_hint__()", "match(X)"),
    *("print(X)", "print('a', X, n, sep='|', end=';')", "(print(X), change(t, n), print(X))"),
    *("print([X], {'x': X})", "print(f'{X}!')", "print(X, file=sys.stderr)"),
    *("log.warning('v %s', X)", "warnings.warn(str(X), Notice)", "sys.stdout.write(str(X))"),
    "(print(X), len(str(X)))",
]

_HEAD = """
import array, collections, copy, dataclasses, enum, functools, heapq, itertools, json, logging, math
import operator, pathlib, pickle, pprint, statistics, string, sys, types, warnings
import numpy as np
import torch
class Thing:
    k = 1
    def __init__(self, n): self.n = n
    def __repr__(self): return f"Thing({self.n}, {self.k})"
class Meta(type):
    def __repr__(cls): return f"<{cls.__name__} {cls.k}>"
class Odd(metaclass=Meta):
    k = 1
class Sub(list):
    def __str__(self): return "Sub" + str(len(self)) + list.__repr__(self)
class Fmt:
    def __init__(self, n): self.n = n
    def __str__(self): return "s%d" % self.n
    def __repr__(self): return "r{}".format(self.n)
    def __format__(self, spec): return "f" + format(self.n, spec)
@dataclasses.dataclass
class Data:
    n: int
    t: object = None
Point = collections.namedtuple("Point", "x y")
class Slot:
    __slots__ = ("n",)
    def __init__(self, n): self.n = n
    def __repr__(self): return f"Slot({self.n})"
    def __eq__(self, o): return isinstance(o, Slot) and self.n == o.n
    def __hash__(self): return hash(self.n)
    def __lt__(self, o): return self.n < o.n
    def __bool__(self): return self.n != 2
    def __len__(self): return 3
    def __iter__(self): return iter([self.n])
    def __contains__(self, v): return v == self.n
    def __getitem__(self, i): return [self.n][i]
    def __index__(self): return self.n
    def __int__(self): return self.n
    def __float__(self): return self.n + 0.5
class Prop:
    def __init__(self, v): self.v = v
    @property
    def size(self): return len(self.v)
    def __len__(self): return len(self.v)
    def __iter__(self): return iter(self.v)
    def __contains__(self, x): return x in self.v
    def __eq__(self, o): return self.v == getattr(o, "v", None)
    def __hash__(self): return len(self.v)
    def __str__(self): return ",".join(map(str, self.v))
    def __getitem__(self, i): return self.v[i]
    def keys(self): return range(len(self.v))
class E(enum.Enum):
    a = 1
    b = 2
    c = 3
class H(logging.Handler):
    def emit(self, record): print("log", record.getMessage())
log = logging.Logger("odd")
log.addHandler(H())
Y, Z, W = [], {"a": 1}, bytearray(b"abc")
def g(*a): return a
def h(**k): return k
def match(v):
    match v:
        case [a, *b]: return a, b
        case {'a': a, **r}: return a, r
        case Thing(n=q): return q
        case _: return None
"""

_BODY = """
X = {made}
AGAIN = {made}
def change(t, n):
    {change}
def f(t, n):
    {change}
    try:
        r = {look}
    except (TypeError, AttributeError, KeyError, IndexError, ValueError) as e:
        r = type(e).__name__
    return t + 1, r
target = f
def steps(f):
    for n in (1, 1, 2, 3):
        yield attempt(f, torch.ones(2), n)
    {first}
    yield attempt(f, torch.ones(2), 3)
    {second}
    yield attempt(f, torch.ones(2) * 2, 3)
    yield attempt(f, torch.ones(2), 4)
"""


def programs(kinds=KINDS):
    """(name, text) of every program."""
    for kind in kinds:
        made, change, first, second = KINDS[kind]
        for look in LOOKS:
            body = _BODY.format(made=made, change=change, look=look, first=first, second=second)
            yield f"{kind}: {look}", _HEAD + body
