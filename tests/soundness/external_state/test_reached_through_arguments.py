"""What a call reads and changes, reached through its arguments: another object in every call.

Owns: the reads and writes of external_state/test_ways_to_read.py and effects/test_ways_to_write.py on objects of a world that is an argument;
and whole programs with arguments of special kinds. Does not own the tables.

PYTEST_DONT_REWRITE: the programs must be what they look like.
"""

# ruff: noqa: E501

import re

import pytest

from tests.fuzz import __main__ as fuzz
from tests.soundness.effects.test_ways_to_write import WORLD, WRITES
from tests.soundness.external_state.test_ways_to_read import PYTHON, indented
from tests.soundness.subprocess_programs import children_ready  # noqa: F401

NAMES = """
L ST D DQ BA AR NP P NS NSQ IT OBJ DC1 SL CM UD MP Q EV LOCK SIO HP GEN M OD DD CT CLOS CELL CELLF G2 LC SD
CV WS WD BN DROP OPT TG RNDG NPG u G EN SLICE PROP GEN2 CNT CYC
""".split()
NAME = re.compile(rf"(?<![\w.'\"])({'|'.join(NAMES)})\b(?!')")
# Classes are the same in all worlds.
SHARED = """
class Root: pass
class Root2: pass
class Base(Root): pass
class Sub(Base): pass
class AB(abc.ABC): pass
@dataclasses.dataclass
class DC:
    a: int = 1
class GG: pass
class PP:
    p = property(lambda s: 8)
class SS: __slots__ = ("a", "b")
class CMC(collections.ChainMap):
    a = 1
class EN(enum.Enum):
    A = 1
    B = 2
def G3(a): return a
def HOOK(*a): return None
class Holder: pass
"""


def module():
    """The imports, the classes, and `make`, which makes a world."""
    lines = WORLD.strip().split("\n")
    imports = [x for x in lines if x.startswith(("import ", "from "))]
    text = "\n".join(x for x in lines if x not in imports)
    for shared in re.split(r"\n(?=class |def |@)", SHARED.strip()):
        text = text.replace(shared + "\n", "", 1)
    return "\n".join(
        [
            *imports,
            SHARED,
            "def make():",
            indented(text),
            "    made = Holder()",
            "    here = dict(locals(), EN=EN)",
            f"    made.__dict__.update((k, here[k]) for k in {NAMES!r})",
            "    return made",
        ]
    )


def through(text):
    """The statements or the expression, on the objects of the world `A`."""
    statements = (s.strip() for s in text.split(";"))
    return NAME.sub(r"A.\1", "\n".join(s for s in statements if not s.startswith("global ")))


def check(program):
    report = fuzz.report_on(program, 0)
    assert report.finding is None
    assert report.calls, "the program fails before it calls anything"


@pytest.mark.parametrize(
    ("asks", "change", "back"), [p for p in PYTHON if NAME.search(p[0])], ids=lambda p: p[:40]
)
def test_read(asks, change, back):
    check(f"""
{module()}
def change(A):
{indented(through(change))}
def reset(A):
{indented(through(back))}
def f(x, A):
    return {through(asks)}, x * 2
target = f
def steps(f):
    got = []
    for k in range(8):
        A = make()
        for done in (reset, change) if k in (3, 4, 6) else (reset,):
            attempt(done, A)
        got.append(str(attempt(f, torch.ones(2), A)))
        attempt(reset, A)
    yield got
""")


@pytest.mark.parametrize(
    ("does", "shows"), [p for p in WRITES if NAME.search(p[0])], ids=lambda p: p[:40]
)
def test_write(does, shows):
    check(f"""
{module()}
def f(x, A):
{indented(through(does))}
    return x * 2
target = f
def steps(f):
    got = []
    for i in range(6):
        if i % 3 == 0:
            A = make()
        got.append(str(attempt(f, torch.ones(2) * (i % 2), A)))
        got.append(str(attempt(lambda: {through(shows)})))
    decimal.getcontext().prec = 28
    yield got
""")


#: Those that are captured anew in each call, or run eagerly.
NO_HITS = {
    "builtin_method_arg",
    "partial_arg",
    "generator_random_arg",
    "class_arg",
    "dictviews_args",
    "logger_arg",
    "lock_arg",
}
PROGRAMS = {
    "weakref_arg": """
import torch, weakref
class P: pass
def f(x, w):
    p = w()
    return x * (2 if p is None else p.v), x
target = f
def steps(f):
    ps = [P() for _ in range(4)]
    for i, p in enumerate(ps):
        p.v = i
    for p in ps:
        yield attempt(f, torch.ones(2), weakref.ref(p))
        yield attempt(f, torch.ones(2), weakref.ref(p))
""",
    "logger_arg": """
import torch, logging
class H(logging.Handler):
    def __init__(self): super().__init__(); self.got = []
    def emit(self, r): self.got.append(r.getMessage())
class A: pass
def f(x, a):
    a.log.warning("n %d", x.dim())
    return x * 2
target = f
def steps(f):
    hs = []
    for i in range(4):
        a = A(); a.log = logging.Logger(f"l{i}"); h = H(); a.log.addHandler(h); hs.append(h)
        yield attempt(f, torch.ones(2), a)
        yield [q.got for q in hs]
""",
    "file_arg": """
import torch, io
def f(x, out):
    print("hi", x.dim(), file=out)
    out.write("z")
    return x * 2
target = f
def steps(f):
    for i in range(4):
        o = io.StringIO()
        yield attempt(f, torch.ones(2), o)
        yield o.getvalue()
""",
    "bound_method_arg": """
import torch
class C:
    def __init__(self): self.n = 0; self.log = []
    def cb(self, t): self.n += 1; self.log.append(self.n); return t * self.n
def f(x, cb):
    return cb(x) + 1
target = f
def steps(f):
    cs = [C() for _ in range(3)]
    for c in cs + cs:
        yield attempt(f, torch.ones(2), c.cb)
        yield [q.n for q in cs], [q.log for q in cs]
""",
    "builtin_method_arg": """
import torch
def f(x, put):
    put(x.dim())
    return x * 2
target = f
def steps(f):
    ls = [[], [], []]
    for l in ls + ls:
        yield attempt(f, torch.ones(2), l.append)
        yield ls
    d = {}
    yield attempt(f, torch.ones(2), d.setdefault)
    yield d
""",
    "partial_arg": """
import torch, functools
def g(a, b, l): l.append(a); return b * a
def f(x, p):
    return p(x)
target = f
def steps(f):
    l = []
    for i in range(5):
        yield attempt(f, torch.ones(2), functools.partial(g, i % 2, l=l))
        yield l
""",
    "generator_random_arg": """
import torch, random, numpy as np
def f(x, r, n, g):
    return x * r.random(), n.random(), torch.rand(1, generator=g)
target = f
def steps(f):
    for i in range(5):
        r, n, g = random.Random(i), np.random.default_rng(i), torch.Generator().manual_seed(i)
        yield attempt(f, torch.ones(2), r, n, g)
        yield r.random(), n.random(), torch.rand(1, generator=g)
""",
    "module_arg": """
import torch
def f(x, m):
    return m(x)
target = f
def steps(f):
    ms = [torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)]
    for m in ms + ms:
        yield attempt(f, torch.ones(2), m)
""",
    "optimizer_arg": """
import torch
def f(x, m, o):
    o.zero_grad()
    m(x).sum().backward()
    o.step()
    return m.weight.detach().clone()
target = f
def steps(f):
    for i in range(3):
        m = torch.nn.Linear(2, 2); o = torch.optim.Adam(m.parameters(), lr=0.1 * (i + 1))
        for _ in range(3):
            yield attempt(f, torch.ones(2), m, o)
            yield [p for p in m.parameters()], list(o.state_dict()["state"])
""",
    "contextvar_arg": """
import torch, contextvars
def f(x, cv):
    cv.set(cv.get() + 1)
    return x * cv.get()
target = f
def steps(f):
    for i in range(3):
        cv = contextvars.ContextVar("q", default=i)
        for _ in range(3):
            yield attempt(f, torch.ones(2), cv)
        yield cv.get()
""",
    "class_arg": """
import torch
def mk(n):
    class K:
        v = n
        def go(self, x): K.count = getattr(K, "count", 0) + 1; return x * self.v
    return K
def f(x, cls):
    return cls().go(x), cls.__name__
target = f
def steps(f):
    ks = [mk(1), mk(2)]
    for k in ks + ks + ks:
        yield attempt(f, torch.ones(2), k)
        yield [getattr(q, "count", 0) for q in ks]
""",
    "cell_function_arg": """
import torch
def mk(n):
    k = n
    def g(x):
        nonlocal k
        k += 1
        return x * k
    return g
def f(x, g):
    return g(x)
target = f
def steps(f):
    gs = [mk(1), mk(5)]
    for g in gs + gs + gs:
        yield attempt(f, torch.ones(2), g)
""",
    "lock_arg": """
import torch, threading
def f(x, l):
    if l.acquire(False):
        l.release()
        return x * 2
    return x
target = f
def steps(f):
    for i in range(6):
        l = threading.Lock()
        if i % 3 == 2: l.acquire()
        yield attempt(f, torch.ones(2), l)
        yield l.locked()
""",
    "dictviews_args": """
import torch
def f(x, d, ks, vs, it):
    return [k for k in ks], list(vs), dict(it), x * len(d)
target = f
def steps(f):
    for i in range(5):
        d = {"a": i % 2, "b": 2}
        yield attempt(f, torch.ones(2), d, d.keys(), d.values(), d.items())
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_does_as_eager(name):
    report = fuzz.report_on(PROGRAMS[name], 0)
    assert report.finding is None
    assert bool(report.hits) is (name not in NO_HITS), report.reasons
