"""What is done with a number that varies: a table of uses, each with the number from another place.

A counter, an argument, an attribute that others set, a size, the value of a tensor.
"""

# ruff: noqa: E501

from __future__ import annotations

import pytest

from tests.fuzz import __main__ as fuzz
from tests.soundness.subprocess_programs import children_ready  # noqa: F401

USES = [
    "n + 1",
    "1 - n",
    "n * 2.5",
    "n / 3",
    "n // 2",
    "n % 3",
    "n ** 2",
    "2 ** n",
    "-n",
    "+n",
    "~n",
    "n << 2",
    "n >> 1",
    "n & 1",
    "n ^ 5",
    "n == 3",
    "n != 3",
    "n < 3",
    "3 <= n",
    "1 < n < 5",
    "n is None",
    "bool(n)",
    "not n",
    "isinstance(n, int)",
    "type(n)",
    "n.__class__",
    "hash(n)",
    "[0] * n",
    "(1, 2) * n",
    '"ab" * n',
    'b"a" * n',
    "L[n % 4]",
    "L[n:]",
    "L[:-n]",
    "L[n:n+2]",
    "L[-1 - n % 3]",
    "D.get(n)",
    "D.get(n, 5)",
    "n in D",
    "n in L",
    "n in (1, 2, 3)",
    "L.index(n % 4)",
    "L.count(n)",
    "{n, 3}",
    "{n: 1}",
    "frozenset([n])",
    "(n, n)",
    "[n] + L",
    'f"{n}"',
    'f"{n:03d}"',
    'f"{n!r:>5}"',
    '"%d" % n',
    '"%s-%s" % (n, 1)',
    '"{}".format(n)',
    "str(n)",
    "repr(n)",
    "chr(n + 60)",
    "hex(n)",
    "bin(n)",
    "oct(n)",
    "bytes(n)",
    "bytearray(n)",
    'n.to_bytes(2, "big")',
    "int(n)",
    "float(n)",
    "complex(n)",
    "complex(1, n)",
    "round(n / 3, 1)",
    "round(n)",
    "divmod(n, 3)",
    "pow(n, 2)",
    "pow(n, 2, 5)",
    "abs(-n)",
    "max(n, 3)",
    "min(n, 3)",
    "max([n, 3, 4])",
    "min(L + [n])",
    "sum([n, 1])",
    "sum(L, n)",
    "sorted([n, 3, 1])",
    "sorted(L, key=lambda q: q * (-1) ** n)",
    "list(range(n))",
    "list(range(n, 8))",
    "range(n)",
    "range(0, 10, n + 1)",
    "len(range(n))",
    "list(enumerate(L, n))",
    "list(zip(L, range(n)))",
    "list(map(lambda q: q + n, L))",
    "[q + n for q in L]",
    "[q for q in L if q > n]",
    "any(q > n for q in L)",
    "all(q < n for q in L)",
    "sum(q * n for q in L)",
    "n.bit_length()",
    "n.real",
    "n.numerator",
    "n.conjugate()",
    "n.__add__(1)",
    "int.__add__(n, 1)",
    "operator.add(n, 1)",
    "operator.index(n)",
    "operator.itemgetter(n % 4)(L)",
    "functools.reduce(operator.add, L, n)",
    "math.sqrt(n)",
    "math.floor(n / 2)",
    "math.ceil(n / 2)",
    "math.gcd(n, 4)",
    "math.log(n + 1)",
    "math.prod([n, 2])",
    "math.comb(n, 2)",
    "math.isclose(n, 3)",
    "math.factorial(n)",
    "math.fsum([n, 0.5])",
    "statistics.mean([n, 1])",
    "decimal.Decimal(n)",
    "fractions.Fraction(n, 3)",
    "datetime.timedelta(days=n)",
    "list(itertools.islice(L, n))",
    "list(itertools.repeat(1, n))",
    "list(itertools.accumulate([n, 1, 2]))",
    "list(itertools.islice(itertools.count(n), 2))",
    '"abcd"[n % 4]',
    '"abcd"[n:]',
    'b"abcd"[n % 4]',
    '"abcd".find("c", n % 2)',
    '"a,b,c".split(",", n)',
    '"ab".ljust(n)',
    '"ab".center(n, "*")',
    "(lambda k=n: k + 1)()",
    "(lambda: n)()",
    "copy.copy([n])",
    'copy.deepcopy({"a": n})',
    'json.dumps({"a": n})',
    "json.loads(str(n))",
    "pickle.loads(pickle.dumps((n, 1)))",
    "np.arange(n)",
    "np.full(2, n)",
    "np.int64(n) + 1",
    "np.array([n, 1]).sum()",
    "np.float32(n)",
    "np.ones(3)[n % 3]",
    "torch.arange(n)",
    "torch.full((n,), 1.0)",
    "torch.full((2,), n)",
    "torch.tensor(n)",
    "torch.tensor([n, 1])",
    "torch.zeros(n, 2)",
    "torch.zeros((2, n)).shape",
    "torch.linspace(0, 1, n + 1)",
    "torch.eye(n)",
    "torch.tensor([1.0, 2.0]) * n",
    "torch.ones(2) ** n",
    "n - torch.ones(2)",
    "n / torch.ones(2)",
    "torch.ones(2) + 1 / n",
    "torch.ones(2) // n",
    "torch.ones(2) % n",
    "torch.ones(8)[n]",
    "torch.ones(8)[n:]",
    "torch.ones(8)[: -n]",
    "torch.ones(8, 2)[n, 1]",
    "torch.ones(8).roll(n)",
    "torch.arange(8.).view(2, 4).roll(n, 1)",
    "torch.ones(2).repeat(n)",
    "torch.ones(2).repeat(n, 1).shape",
    "torch.ones(1, 2).expand(n, 2)",
    "torch.ones(8).narrow(0, n % 4, 2)",
    "torch.ones(12).view(-1, 1 + n % 2)",
    "torch.arange(8.).chunk(n)",
    "torch.arange(8.).split(n)",
    "torch.arange(8.).topk(n)",
    "torch.arange(8.).unfold(0, n, 1)",
    "torch.ones(2, 3).sum(n % 2)",
    "torch.ones(2, 3).transpose(0, n % 2)",
    "torch.ones(2, 3).unsqueeze(n % 3)",
    "torch.ones(8).clamp(max=n)",
    "torch.ones(8).masked_fill(torch.ones(8) > n, n)",
    "torch.arange(8) == n",
    "torch.arange(8) < n",
    "(torch.arange(8) < n).sum()",
    "torch.ones(4, 4).triu(n)",
    "torch.ones(4, 4).diagonal(n % 3)",
    "torch.ones(3).cumsum(0) * n",
    "torch.nn.functional.pad(torch.ones(2), (n, 0))",
    "torch.nn.functional.one_hot(torch.tensor([1]), n + 2)",
    "torch.nn.functional.avg_pool1d(torch.ones(1, 1, 8), n % 3 + 1)",
    "torch.nn.functional.interpolate(torch.ones(1, 1, 4), size=n)",
    "torch.nn.functional.interpolate(torch.ones(1, 1, 4), scale_factor=n)",
    "torch.nn.functional.dropout(torch.ones(3), 0.0 * n)",
    "torch.nn.functional.leaky_relu(torch.ones(3), n)",
    "torch.where(torch.ones(2) > n, n, -n)",
    "torch.stack([torch.ones(2)] * n)",
    "torch.cat([torch.ones(2)] * n)",
    "torch.empty(n).shape",
    "torch.randperm(n).sum()",
    "torch.rand(n)",
    "torch.randint(n, (3,))",
    "torch.ones(2).new_full((n,), n)",
    "torch.Size([n, 2])",
    "torch.Size([n, 2]).numel()",
    "torch.add(torch.ones(2), torch.ones(2), alpha=n)",
    "torch.addcmul(torch.ones(2), torch.ones(2), torch.ones(2), value=n)",
    "torch.lerp(torch.zeros(2), torch.ones(2), n)",
    "torch.pow(n, torch.ones(2))",
    "torch.ones(2).lt(n)",
    "torch.ones(3).index_fill(0, torch.tensor([0]), n)",
    "torch.ones(3).index_select(0, torch.tensor([n % 3]))",
    "torch.ones(2).mul_(n)",
    "torch.ones(2).fill_(n)",
    "torch.zeros(8).index_put((torch.tensor([n % 8]),), torch.ones(1))",
    "torch.ones(2, 2).matrix_power(n)",
    "torch.ones(3).quantile(n / 100)",
    "torch.bincount(torch.tensor([1, 2]), minlength=n)",
    "torch.linspace(0, n, 3)",
    "torch.arange(n, 0, -1)",
    "torch.logspace(0, n, 2)",
    "torch.tril_indices(n, n)",
    "torch.ones(n, n).sum()",
    'torch.einsum("ij->j", torch.ones(n, 2))',
    "torch.ones(2).sum().item() + n",
    "float(torch.ones(2).sum()) * n",
    'setattr(o, "a", n)',
    'setattr(o, f"a{n % 2}", 1)',
    'getattr(o, f"b{n % 2}", n)',
    "o.__dict__.update(q=n)",
    "D2.update({n: n})",
    "D2.setdefault(n % 3, n)",
    'D2.__setitem__("k", n)',
    "L2.append(n)",
    "L2.extend([n] * n)",
    "L2.insert(n % 2, n)",
    "L2.__setitem__(0, n)",
    "S2.add(n)",
    "DQ.append(n)",
    "print(n)",
    'print(f"{n}", n)',
    'exec(f"y={n}")',
    'eval(f"{n}+1")',
    "random.Random(n).random()",
    "random.seed(n)",
    "torch.manual_seed(n)",
    "time.sleep(0 * n)",
    'os.environ.get(f"Q{n}")',
    'warnings.warn(f"{n}")',
    'logging.getLogger("zq").warning("%d", n)',
    "weird(n)",
    "gen(n)",
    'kw(**{"a": n})',
    "star(*[n] * 2)",
    "Cls(n).v",
    "Cls(n)",
    "DCl(n)",
    "DCl(n) == DCl(3)",
    "NT(n, 1)",
    "NT(n, 1)._replace(b=n)",
    "EN(n % 2)",
    "slice(n)",
    "slice(n).indices(4)",
    'memoryview(b"abcd")[n % 4]',
    "[*range(n)][-1:]",
    "{**{str(n): n}}",
    "{q: n for q in L}",
    "[n for _ in L][n % 4]",
    "next(iter([n]))",
    'dict(a=n).get("a")',
    "tuple([n])[0]",
    "list((n,)).pop()",
    "dict.fromkeys([n, 1], n)",
    "string.ascii_letters[n]",
    "bisect.bisect([1, 3, 5], n)",
    "heapq.nsmallest(n, L)",
    "collections.Counter([n, 1])",
    "collections.deque([1, 2, 3], maxlen=n)",
    'array.array("i", [n])',
    'struct.pack("i", n)',
    'textwrap.shorten("abc def", n + 5)',
    're.sub("a", "b", "aaa", n)',
    "calendar.monthrange(2000, n % 12 + 1)",
    "uuid.UUID(int=n)",
    "ipaddress.ip_address(n)",
    "colorsys.rgb_to_hsv(n, 1, 1)",
    "zlib.crc32(bytes([n]))",
    "hashlib.md5(str(n).encode()).hexdigest()",
    "base64.b64encode(bytes([n]))",
    "inspect.signature(kw)",
    'contextvars.ContextVar("z", default=n).get()',
    "types.SimpleNamespace(a=n)",
    "functools.partial(weird, n)()",
    "functools.partial(weird, n).args",
    "mem(n)",
    "mem(n % 2)",
    "n in (1, 3)",
    "n in [2, 4]",
    "n not in L",
    "n in {1, 5}",
    "n in frozenset([2])",
    "n in D2",
    "n in o.stats",
    "n in (True, 2.0, '3')",
    "str(n) in ('1', '3')",
    "str(n) in '135'",
    "n in range(3)",
    "n in DQ",
    "(n, 1) in [(3, 1)]",
    "n in [x0s, 3]",
    "n in (float('nan'), 3)",
    "n / 2 in (1.0, 2.5)",
    "n in (o.n, 3)",
    "n in [o.m, 3]",
    "f'k{n}' in o.stats",
    "n in o.stats.values()",
    "n in o.stats.keys()",
    "divmod(n, 2)[1] and 5",
    "math.modf(n / 2)",
    "math.frexp(n)",
    "(n / 4).as_integer_ratio()",
    "f'a{n}b'.partition(str(n))",
    "f'{n},{n}'.split(',')",
    "hex(n) + bin(n) + oct(n)",
    "chr(65 + n)",
    "ord(chr(65 + n))",
    "hash(str(n)) % 5",
    "str(n)[0]",
    "str(n)[-1] == '3'",
    "str(n) == '3'",
    "str(n) < '4'",
    "'x'.join([str(n), 'y'])",
    "str(n).isdigit()",
    "str(n) * 2",
    "str(n) + 'q'",
    "'%s' % n",
    "'%c' % (65 + n)",
    "{str(n): 1}",
    "o.__setattr__('z', str(n))",
    "setattr(o, str(n), 1)",
    "D2.update({str(n): n})",
    "getattr(o, 'a' + str(n), 0)",
    "print(n, end='')",
    "str(n).join(['a', 'b'])",
    "str(n).encode()",
    "int(str(n)) + 1",
    "float(str(n))",
    "str(n).zfill(3)",
    "len(str(n))",
    "list(str(n))",
    "[c for c in str(n)]",
    "max(str(n), '2')",
    "sorted([str(n), '2'])",
    "str(n) is None",
    "bool(str(n))",
    "str(n).upper()",
    "'abc'[n % 3]",
    "'abc'[n % 3] == 'a'",
    "'abc'[n % 3] in o.stats",
    "o.stats.get('abc'[n % 3])",
    "o.stats['abc'[n % 3]]",
    "['abc'[n % 3]] * 2",
    "('abc'[n % 3], 1)",
    "re.match('[0-3]', str(n)) is None",
    "json.dumps(str(n))",
    "x0s.get(str(n))",
    "'{:>{w}}'.format(n, w=n)",
    "f'{n:>{n}}'",
    "match_(n)",
    "match_(str(n))",
    "exec('q = ' + str(n))",
]

HEAD = """
import torch, operator, functools, math, statistics, decimal, fractions, datetime, itertools
import copy, json, pickle, numpy as np, random, time, os, warnings, logging, collections
import dataclasses, enum, string, bisect, heapq, array, struct, textwrap, re, calendar, uuid
import ipaddress, colorsys, zlib, hashlib, base64, inspect, contextvars, types
L, D, D2, L2, S2, DQ = [0, 1, 2, 3], {1: "a", 3: "b"}, {}, [0], set(), collections.deque(maxlen=3)
x0s = {"1": 2}
class O: pass
o = O()
class Slotted:
    __slots__ = ("n",)
sl = Slotted()
sl.n = 0
o.n, o.m, o.stats = 0, 2, {"a": 1, "b": 5, "c": 3}
def weird(k):
    if k > 3: return "big"
    return k
def gen(k):
    def g():
        for i in range(k): yield i
    return list(g())
def kw(a=1, **k): return a * 2
def star(*a): return a
class Cls:
    def __init__(self, v): self.v = v + 1
@dataclasses.dataclass
class DCl: v: int
NT = collections.namedtuple("NT", "a b")
class EN(enum.Enum):
    A = 0
    B = 1
@functools.lru_cache
def mem(k): return k + 1
def match_(v):
    match v:
        case 1 | "1": return "one"
        case 2 | 3: return "few"
        case str(): return "text"
        case _: return "many"
"""
# Where the number comes from, and how the function is called so that it is `i`.
SOURCES = {
    "slot": ("sl.n += 1; n = sl.n", "attempt(f, x0)"),
    "counter": ("o.n += 1; n = o.n", "attempt(f, x0)"),
    "argument": ("pass", "attempt(f, x0, i)"),
    "attribute": ("n = o.n", "(setattr(o, 'n', i), attempt(f, x0))"),
    "size": ("n = x.shape[0]", "attempt(f, torch.ones(i))"),
    "item": ("n = int(x.sum())", "attempt(f, torch.tensor([float(i)]))"),
}
STEPS = """
target = f

def steps(f):
    x0 = torch.ones(2)
    for i in (1, 2, 3, 5, 4, 2, 6, 11, 3, 10):
        yield {call}, o.__dict__, D2, L2, S2, DQ
        if i == 6:
            L.append(11); D[11] = 1; o.m = 3; o.stats["k3"] = 4; DQ.append(10)
"""


def report_on(use, source):
    first, call = SOURCES[source]
    function = f"def f(x, n=None):\n    {first}\n    result = {use}\n    return x + 1, result\n"
    return fuzz.report_on(HEAD + function + STEPS.format(call=call), 0)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("use", "source"),
    [(use, list(SOURCES)[i % len(SOURCES)]) for i, use in enumerate(USES)],
    ids=lambda p: p[:40],
)
def test_number_is_used_as_in_eager(use, source):
    report = report_on(use, source)
    assert report.finding is None
    assert report.steps == 10


@pytest.mark.parametrize(
    ("use", "captures"),
    [
        ("f'{n}'", 1),
        ("str(n) + 'a'", 1),
        ("'%d' % n", 1),
        ("print(f'step {n}')", 1),
        ("divmod(n, 3)", 1),
        ("n in (2, 5)", 2),
        ("n in L", 2),
        ("x + 1 if n in {3, 11} else x", 2),
        ("hex(n)", 1),
        ("torch.nn.functional.dropout(x, n / 20.5)", 1),
        ("torch.nn.functional.gumbel_softmax(x, tau=n / 2.3)", 1),
        ("torch.full((2,), n / 8.5), x.clamp(max=n / 3.1)", 1),
        ("torch.nn.functional.huber_loss(x, x * 2, delta=n / 7.7)", 1),
        ("torch.empty(2).normal_(0.0, n / 9.1)", 1),
    ],
)
@pytest.mark.parametrize("source", ["counter", "item", "slot"])
def test_few_captures_serve_all(use, captures, source):
    report = report_on(use.replace("L", "(0, 1, 2)"), source)
    assert report.finding is None
    assert (report.captures, report.hits) == (captures, 10 - captures)


def test_a_probability_of_zero_and_of_one_are_special():
    """Dropout then gives its argument itself, and nothing but zeros."""
    use = "torch.nn.functional.dropout(x, o.p, True).add_(1)"
    program = (
        f"{HEAD}\ndef f(x):\n    o.p = o.p * 1.0\n    return {use}, x\ntarget = f\n"
        "def steps(f):\n    for p in (0.5, 0.3, 0.0, 1.0, 0.4, 0.0, 0.6, 1.0, 0.0, 1.0):\n"
        "        o.p = p\n        yield attempt(f, torch.arange(1.0, 3.0))"
    )
    report = fuzz.report_on(program, 0)
    assert report.finding is None
    assert (report.steps, report.captures) == (10, 3)
