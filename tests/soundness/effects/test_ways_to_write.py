"""Every way of changing the world, done by a call, and what tells that it was done.

Owns: a table of (statements, what shows their effect), each called five times, eagerly and compiled, in
worlds of their own. Does not own several effects in one call and their order (effects/test_order_of_effects.py).

PYTEST_DONT_REWRITE: the programs must be what they look like.
"""

# ruff: noqa: E501

import pytest

from tests.fuzz import __main__ as fuzz
from tests.soundness import subprocess_programs as apart
from tests.soundness.subprocess_programs import children_ready  # noqa: F401

WORLD = f"""
import torch, sys, os
{apart.WORLD}

import atexit, bisect
def G3(a): return a
def NEWCLS(): return type("New", (), {{}})
L[:] = [1, 2, 3]; ST |= {{1, 2}}; HP[:] = [1, 3, 5]
NP = np.array([3.0, 1.0, 2.0])
CNT = itertools.count(); CYC = itertools.cycle([1, 2])
DQ = collections.deque([1, 2], maxlen=5)
DC1 = DC()
OD = collections.OrderedDict(a=1, b=2, c=3, d=4, e=5, f=6); DD = collections.defaultdict(list); CT = collections.Counter("ab")
D.update(l=1, m=2, n=3, o=4)
TL = threading.local()
def _mk2():
    v = 1
    def get(): return v
    def put(q):
        nonlocal v
        v += q
    return get, put
CLOS, CELLF = _mk2(); CELL = CLOS.__closure__[0]
torch.manual_seed(0); random.seed(0); np.random.seed(0)
RNG = torch.get_rng_state()
M = torch.nn.Linear(2, 2); BN = torch.nn.BatchNorm1d(2); DROP = torch.nn.Dropout(0.5)
SDICT = {{"weight": torch.ones(2, 2), "bias": torch.zeros(2)}}
OPT = torch.optim.SGD(M.parameters(), lr=0.1)
RNDG = random.Random(1); NPG = np.random.default_rng(1); TG = torch.Generator()
TG.manual_seed(1)
def HOOK(*a): return None
OLDOUT = [None]
def gen():
    while True:
        L.append(1)
        yield 1
GEN2 = gen()
u = torch.zeros(2)
"""
STEPS = """
def probe():
    try:
        return str(eval(SHOWS))
    except Exception as e:
        return repr(e)
target = f
def reset():
    sys.setrecursionlimit(1000); np.seterr(over="warn"); os.environ.pop("ZZ", None); gc.enable(); logging.disable(0)
    logging.getLogger("zz").setLevel(0); sys.setswitchinterval(0.005); decimal.getcontext().prec = 28
    sys.path[:] = [q for q in sys.path if q != "zz"]; sys.modules.pop("zzmod", None); copyreg.dispatch_table.pop(Base, None)
    if hasattr(builtins, "ZZ"): del builtins.ZZ
    threading.current_thread().name = "MainThread"; torch.set_printoptions(profile="default")
def steps(f):
    OLDOUT[0] = sys.stdout
    reset()
    got = []
    n = len(warnings.filters)
    for i in range(5):
        got.append(str(attempt(f, torch.ones(2) * (i % 3))))
        pr = probe()
        got.append(pr if "warnings" not in SHOWS else str(int(pr) - n))
    reset()
    yield got, L, D, ST
"""

#: (what the call does, what shows it).
WRITES = [
    ("sys.setrecursionlimit(sys.getrecursionlimit() + 1)", "sys.getrecursionlimit()"),
    ("warnings.simplefilter('ignore', ImportWarning)", "len(warnings.filters)"),
    ("warnings.filterwarnings('ignore', 'zz')", "len(warnings.filters)"),
    ("random.seed(3)", "random.random()"),
    ("np.random.seed(3)", "np.random.rand()"),
    ("np.seterr(over='ignore')", "np.geterr()['over']"),
    ("os.environ['ZZ'] = os.environ.get('ZZ', '') + 'a'", "os.environ.get('ZZ')"),
    ("os.environ.pop('ZZ', None)", "os.environ.get('ZZ')"),
    ("gc.disable()", "gc.isenabled()"),
    ("logging.disable(10)", "logging.root.manager.disable"),
    (
        "logging.getLogger('zz').setLevel(logging.getLogger('zz').level + 1)",
        "logging.getLogger('zz').level",
    ),
    ("sys.setswitchinterval(0.01)", "sys.getswitchinterval()"),
    ("decimal.getcontext().prec = 5", "decimal.getcontext().prec"),
    ("decimal.getcontext().prec += 1", "decimal.getcontext().prec"),
    ("CV.set(CV.get() + 1)", "CV.get()"),
    ("AB.register(NEWCLS())", "1"),
    ("copyreg.pickle(Base, str)", "copyreg.dispatch_table.get(Base)"),
    ("sys.path.append('zz')", "sys.path.count('zz')"),
    ("LC(1)", "LC.cache_info().currsize"),
    ("LC.cache_clear()", "LC.cache_info().currsize"),
    ("next(IT, None)", "list(copy.copy(IT))"),
    ("next(CNT)", "repr(CNT)"),
    ("next(CYC)", "next(copy.copy(CYC))"),
    ("Q.put(1)", "Q.qsize()"),
    ("Q.put(1); Q.get()", "Q.qsize()"),
    ("EV.set()", "EV.is_set()"),
    ("SIO.write('q')", "SIO.getvalue()"),
    ("SIO.seek(0)", "SIO.tell()"),
    ("print('a', file=SIO)", "SIO.getvalue()"),
    ("DQ.append(len(DQ))", "list(DQ)"),
    ("DQ.appendleft(3); DQ.rotate(1)", "list(DQ)"),
    ("DQ.clear()", "list(DQ)"),
    ("L.append(len(L))", "list(L)"),
    ("L.insert(0, len(L))", "list(L)"),
    ("L.reverse()", "list(L)"),
    ("L.sort()", "list(L)"),
    ("L.extend(range(2))", "list(L)"),
    ("L += [1]", "list(L)"),
    ("L *= 2", "list(L)"),
    ("L[:1] = [7, 8]", "list(L)"),
    ("del L[0]", "list(L)"),
    ("L.pop()", "list(L)"),
    ("L.remove(2)", "list(L)"),
    ("L[0], L[1] = L[1], L[0]", "list(L)"),
    ("L[-1] += 1", "list(L)"),
    ("D['k'] = len(D)", "dict(D)"),
    ("D.update(z=len(D))", "dict(D)"),
    ("D.pop('a', None)", "dict(D)"),
    ("D.popitem()", "dict(D)"),
    ("D.setdefault('q', []).append(1)", "dict(D)"),
    ("D |= {'w': 3}", "dict(D)"),
    ("D['a'] += 1", "dict(D)"),
    ("del D['a']; D['a'] = 5", "list(D.items())"),
    ("D.clear()", "dict(D)"),
    ("ST.add(len(ST))", "sorted(ST)"),
    ("ST.discard(1)", "sorted(ST)"),
    ("ST ^= {1, 9}", "sorted(ST)"),
    ("ST.pop()", "len(ST)"),
    ("ST.clear()", "sorted(ST)"),
    ("BA.extend(b'z')", "bytes(BA)"),
    ("BA[0] = (BA[0] + 1) % 200", "bytes(BA)"),
    ("AR.append(3)", "list(AR)"),
    ("AR[0] += 1", "list(AR)"),
    ("memoryview(BA)[0] = 7", "bytes(BA)"),
    ("NP[0] = 9", "NP.tolist()"),
    ("NP += 1", "NP.tolist()"),
    ("NP.sort()", "NP.tolist()"),
    ("NP.fill(3)", "NP.tolist()"),
    ("np.add(NP, 1, out=NP)", "NP.tolist()"),
    ("NP.flags.writeable = False", "NP.flags.writeable"),
    ("NP.shape = (3, 1)", "NP.shape"),
    ("OBJ.q = getattr(OBJ, 'q', 0) + 1", "OBJ.__dict__"),
    ("OBJ.__dict__['z'] = 1", "OBJ.__dict__"),
    ("OBJ.__dict__.update(w=2)", "OBJ.__dict__"),
    ("vars(OBJ)['t'] = 1", "OBJ.__dict__"),
    ("OBJ.__dict__ = {'n': 1}", "OBJ.__dict__"),
    ("setattr(OBJ, 'a%d' % x.dim(), 1)", "OBJ.__dict__"),
    ("OBJ.__class__ = Sub", "type(OBJ).__name__"),
    ("Base.cnt = getattr(Base, 'cnt', 0) + 1", "getattr(Base, 'cnt', 0)"),
    ("Base.meth = lambda s: 1", "hasattr(Base, 'meth')"),
    ("Base.__name__ = 'Other'", "Base.__name__"),
    ("type.__setattr__(Base, 'zz', 3)", "hasattr(Base, 'zz')"),
    ("G2.attr = 3", "G2.__dict__"),
    ("G2.__defaults__ = (9,)", "G2.__defaults__"),
    ("G2.__kwdefaults__ = {'k': 9}", "G2.__kwdefaults__"),
    ("G2.__doc__ = 'q'", "G2.__doc__"),
    ("G2.__code__ = G3.__code__", "G2.__code__.co_name"),
    ("DC1.a = DC1.a + 1", "DC1"),
    ("SL.a += 1", "SL.a"),
    ("del SL.a; SL.a = 3", "SL.a"),
    ("NS.a += 1", "NS"),
    ("NSQ.q.r += 1", "NSQ"),
    ("CELLF(5)", "CLOS()"),
    ("CELL.cell_contents = 7", "CLOS()"),
    ("CM['zz'] = 3", "dict(CM)"),
    ("UD['zz'] = 3", "dict(UD)"),
    ("OD.move_to_end('a')", "list(OD)"),
    ("OD['n'] = 1; OD.move_to_end('n', last=False)", "list(OD)"),
    ("OD.popitem(last=False)", "list(OD)"),
    ("DD['miss'].append(1)", "dict(DD)"),
    ("DD['x']", "dict(DD)"),
    ("CT.update('aab')", "dict(CT)"),
    ("CT['a'] += 1", "dict(CT)"),
    ("HP.sort(); heapq.heappush(HP, 0)", "HP"),
    ("heapq.heappop(HP)", "HP"),
    ("bisect.insort(HP, 2)", "HP"),
    ("random.shuffle(L)", "list(L)"),
    ("EN.A.extra = 3", "getattr(EN.A, 'extra', 0)"),
    ("sys.modules['zzmod'] = os", "'zzmod' in sys.modules"),
    ("globals()['GLOB'] = globals().get('GLOB', 0) + 1", "globals().get('GLOB')"),
    ("global GLOB; GLOB = 4", "globals().get('GLOB')"),
    ("exec('GLOB2 = 3', globals())", "globals().get('GLOB2')"),
    ("builtins.ZZ = 3", "hasattr(builtins, 'ZZ')"),
    ("threading.current_thread().name = 'q'", "threading.current_thread().name"),
    ("TL.v = getattr(TL, 'v', 0) + 1", "getattr(TL, 'v', 0)"),
    ("sys.stdout.write('hello')", "1"),
    ("print('hello', end='', flush=True)", "1"),
    ("warnings.warn('w', Notice)", "1"),
    ("logging.getLogger('zz').warning('m %s', 3)", "1"),
    ("u.add_(1)", "u, u._version"),
    ("u[0] = 5", "u"),
    ("u.data.add_(1)", "u"),
    ("u.data = u.data + 1", "u"),
    ("u.requires_grad_(not u.requires_grad)", "u.requires_grad"),
    ("u.grad = torch.ones(2)", "u.grad"),
    ("u.tag = getattr(u, 'tag', 0) + 1", "u.__dict__"),
    ("u.resize_(3).zero_()", "u.shape"),
    ("u.t_()", "u.shape"),
    ("u.unsqueeze_(0)", "u.shape"),
    ("u.set_(torch.ones(3))", "u"),
    ("u.copy_(x)", "u"),
    ("u.share_memory_()", "u.is_shared()"),
    ("u.numpy()[0] += 1", "u"),
    ("u.zero_().normal_()", "u"),
    ("torch.add(u, 1, out=u)", "u"),
    ("u.swapaxes_(0, 0)", "u"),
    ("torch.manual_seed(4)", "torch.rand(1)"),
    ("torch.set_rng_state(RNG)", "torch.rand(1)"),
    ("torch.rand(2)", "torch.rand(1)"),
    ("M.eval()", "M.training"),
    ("M.train(not M.training)", "M.training"),
    ("M.requires_grad_(False)", "M.weight.requires_grad"),
    ("M.zero_grad()", "M.weight.grad"),
    ("M.register_buffer('bb', torch.ones(1))", "sorted(M._buffers)"),
    ("M.register_forward_hook(HOOK)", "len(M._forward_hooks)"),
    ("M.add_module('zz', torch.nn.ReLU())", "sorted(M._modules)"),
    ("M.weight = torch.nn.Parameter(torch.ones(2, 2))", "M.weight"),
    ("M.weight.data.mul_(0.5)", "M.weight"),
    ("del M.bias; M.bias = None", "M.bias"),
    ("M.register_parameter('pp', None)", "sorted(M._parameters)"),
    ("M.load_state_dict(SDICT)", "M.weight"),
    ("M.double()", "M.weight.dtype"),
    ("M.apply(lambda m: setattr(m, 'seen', 1))", "M.seen if hasattr(M, 'seen') else 0"),
    ("torch.nn.init.ones_(M.weight)", "M.weight"),
    ("torch.nn.init.normal_(M.weight)", "M.weight"),
    ("torch.nn.utils.clip_grad_norm_([u.requires_grad_()], 1.0)", "u.requires_grad"),
    ("M(x).sum().backward()", "M.weight.grad"),
    ("OPT.zero_grad(); M(x).sum().backward(); OPT.step()", "M.weight"),
    ("OPT.param_groups[0]['lr'] *= 0.5", "OPT.param_groups[0]['lr']"),
    ("BN(torch.ones(3, 2) * x)", "BN.running_mean, BN.num_batches_tracked"),
    ("DROP(torch.ones(4))", "torch.rand(1)"),
    ("torch.save({'a': 1}, io.BytesIO())", "1"),
    ("copy.deepcopy(M)", "1"),
    ("sys.stdout = SIO; sys.stdout = OLDOUT[0]", "1"),
    ("exec('y = 3')", "1"),
    ("GEN2.send(None)", "1"),
    ("next(GEN2)", "1"),
    ("WD[OBJ] = 1", "len(WD)"),
    ("WS.add(OBJ)", "len(WS)"),
    ("SD.register(str, HOOK)", "len(SD.registry)"),
    ("functools.update_wrapper(G2, G3)", "G2.__name__"),
    ("abc.update_abstractmethods(AB)", "1"),
    ("types.MappingProxyType(D); D['pp'] = 1", "dict(D)"),
    ("torch.nn.Module.__setattr__(M, 'k', 3)", "M.k if hasattr(M, 'k') else 0"),
    ("object.__setattr__(OBJ, 'k', 3)", "OBJ.__dict__"),
    ("OBJ.__dict__.setdefault('lst', []).append(1)", "OBJ.__dict__"),
    ("operator.setitem(D, 'op', 1)", "dict(D)"),
    ("operator.iadd(L, [5])", "list(L)"),
    ("list.append(L, 5)", "list(L)"),
    ("dict.__setitem__(D, 'dd', 5)", "dict(D)"),
    ("collections.deque.append(DQ, 5)", "list(DQ)"),
    ("[L.append(i) for i in range(2)]", "list(L)"),
    ("list(map(L.append, [1, 2]))", "list(L)"),
    ("any(L.append(i) for i in range(2))", "list(L)"),
    ("sorted([2, 1], key=lambda q: L.append(q) or q)", "list(L)"),
    ("max([2, 1], key=lambda q: D.update({q: q}) or q)", "dict(D)"),
    ("functools.reduce(lambda a, b: L.append(b) or b, [1, 2])", "list(L)"),
    ("re.sub('a', lambda m: L.append(1) or 'b', 'aa')", "list(L)"),
    ("P.keywords['b'] = 3", "P.keywords"),
    ("torch.set_printoptions(precision=3)", "str(torch.tensor(1.23456))"),
    ("time.sleep(0)", "1"),
    ("u.register_hook(HOOK) if u.requires_grad else u.requires_grad_()", "u.requires_grad"),
    ("u.retain_grad() if u.requires_grad else u.requires_grad_()", "u.requires_grad"),
    ("torch.autograd.graph.increment_version(u)", "u._version"),
    ("u.index_put_((torch.tensor([0]),), torch.tensor(4.0))", "u"),
    ("torch._foreach_add_([u], 1)", "u"),
    ("u.masked_fill_(x > 0, 3.0)", "u"),
    ("u.view(-1)[0] = 8", "u"),
    ("np.copyto(NP, 4)", "NP.tolist()"),
    ("NP.itemset(0, 3) if hasattr(NP, 'itemset') else NP.put(0, 3)", "NP.tolist()"),
    ("np.random.shuffle(NP)", "NP.tolist(), np.random.rand()"),
    ("RNDG.random()", "RNDG.random()"),
    ("NPG.random()", "NPG.random()"),
    ("TG.manual_seed(3)", "torch.rand(1, generator=TG)"),
    ("torch.rand(1, generator=TG)", "torch.rand(1, generator=TG)"),
]
#: What is refused, or captured anew in each call.
NO_HITS = {
    "AB.register(NEWCLS())",
    "AR.append(3)",
    "AR[0] += 1",
    "BA.extend(b'z')",
    "BA[0] = (BA[0] + 1) % 200",
    "CT.update('aab')",
    "CV.set(CV.get() + 1)",
    "D.popitem()",
    "DQ.append(len(DQ))",
    "DQ.appendleft(3); DQ.rotate(1)",
    "GEN2.send(None)",
    "HP.sort(); heapq.heappush(HP, 0)",
    "L *= 2",
    "L += [1]",
    "L.append(len(L))",
    "L.insert(0, len(L))",
    "L[:1] = [7, 8]",
    "M.register_forward_hook(HOOK)",
    "NP += 1",
    "NP.flags.writeable = False",
    "OD.popitem(last=False)",
    "SIO.seek(0)",
    "TG.manual_seed(3)",
    "TL.v = getattr(TL, 'v', 0) + 1",
    "L.pop()",
    "L.remove(2)",
    "ST.pop()",
    "abc.update_abstractmethods(AB)",
    "bisect.insort(HP, 2)",
    "decimal.getcontext().prec += 1",
    "del L[0]",
    "heapq.heappop(HP)",
    "list(map(L.append, [1, 2]))",
    "logging.getLogger('zz').warning('m %s', 3)",  # a handler of pytest's hears of it
    "next(CNT)",
    "next(CYC)",
    "next(GEN2)",
    "next(IT, None)",
    "np.add(NP, 1, out=NP)",
    "np.random.seed(3)",
    "np.random.shuffle(NP)",
    "np.seterr(over='ignore')",
    "operator.iadd(L, [5])",
    "os.environ['ZZ'] = os.environ.get('ZZ', '') + 'a'",
    "random.seed(3)",
    "random.shuffle(L)",
    "sys.setrecursionlimit(sys.getrecursionlimit() + 1)",
    "sys.setswitchinterval(0.01)",
    "torch.autograd.graph.increment_version(u)",
    "torch.save({'a': 1}, io.BytesIO())",
    "torch.set_rng_state(RNG)",
    "u.numpy()[0] += 1",
    "u.register_hook(HOOK) if u.requires_grad else u.requires_grad_()",
    "u.resize_(3).zero_()",
    "u.set_(torch.ones(3))",
    "u.unsqueeze_(0)",
    "warnings.warn('w', Notice)",  # a list of pytest's hears of it
}


def body(does):
    """The statements, and the declarations that they need."""
    statements = [s.strip() for s in does.split(";")]
    first = [s for s in statements if s.startswith("global ")]
    for name in ("L", "D", "ST", "NP"):
        if statements[0].startswith(tuple(f"{name} {op}= " for op in "+*|^")):
            first.append(f"global {name}")
    return [*first, *(s for s in statements if not s.startswith("global "))]


@pytest.mark.parametrize(("does", "shows"), WRITES, ids=lambda p: p[:50])
def test_effect_is_eager_s(does, shows):
    lines = [*body(does), "return x * 2"]
    function = "def f(x):\n" + "\n".join("    " + line for line in lines)
    report = fuzz.report_on(f"{WORLD}\nSHOWS = {shows!r}\n{function}\n{STEPS}", 0)
    assert report.finding is None
    assert bool(report.hits) is (does not in NO_HITS), report.reasons
