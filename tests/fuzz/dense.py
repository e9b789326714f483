"""Random programs of few objects and many uses of them, which meet each other in every program.

Owns: groups of templates (a world, lines of the function, changes between calls) and how a program
is made of one.  Does not own what is done with it (`worlds.py`).  `grammar.py` makes programs of all
that there is, in which two given uses of one object hardly ever meet.

A line that follows and is indented, or begins with `except`, `finally` or `else`, belongs to the
one before it.  `p` and `k` are the arguments, a tensor and a number; `r` is what is returned; `j`
counts the calls.
"""

# ruff: noqa: E501

from __future__ import annotations

import ast
import dataclasses
import random

from tests.fuzz import grammar


@dataclasses.dataclass
class Group:
    """Templates: the world, the lines of the function, changes of the world, tensors to give."""

    world: str
    uses: str
    changes: str
    tensors: list[str]


_NUMBERS = ("1", "2", "3", "0", "1", "2")
_CALLS = 8

GROUPS = {
    "containers": Group(
        """
import collections
class O:
    pass
a = [1, 2]; b = [a, 3]; d = {'x': a, 'y': 1}; o = O(); o.d = d; o.n = 0; s = {1, 2}; dq = collections.deque([a, 1], 4)
t0 = torch.ones(2); lst = [t0, 1.5]; od = collections.OrderedDict(a=1, b=a); dd = collections.defaultdict(list)
""",
        """
a.append(k)
a.append(p)
b.append(a)
b[0] = list(a)
b[0] = [k]
r.append(b[0] is a)
r.append(d['x'])
d['x'] = b
d['y'] += 1
d[k] = p
r.append(d.get(k))
d.pop('y', None)
d.setdefault('y', 0)
o.d = dict(d)
o.d['z'] = a
r.append(o.d is d)
o.n += 1
r.append(o.n)
o.n = o.n * 2 % 5
r.append(list(d))
s.add(k)
s.discard(1)
r.append(k in s)
r.append(len(s))
dq.append(a)
dq.appendleft(k)
dq.popleft()
r.append(dq[0])
dq.rotate(1)
r.append(lst[0] + 1)
lst[0] = p
lst[0].add_(1)
lst.append(lst[0])
lst.reverse()
lst[1], lst[0] = lst[0], lst[1]
od.move_to_end('a')
r.append(list(od))
od['c'] = od.pop('a', 0)
dd[k].append(p)
r.append(dict(dd))
del dd[k]
a.clear()
a.extend(b)
a[:] = a[:2]
a.sort(key=str)
r.append(a + b)
r.append(a == b[0])
r.append(sum(x for x in a if type(x) is int))
for q in list(a): r.append(q)
a.insert(0, k)
a.remove(k)
r.append(a.index(k))
r.append(a.count(k))
b[:], a[:] = [a], [k]
setattr(o, 'm%d' % (k % 3), p)
r.append(sorted(vars(o)))
o.__dict__.update(w=k)
o.__dict__.clear(); o.d = d; o.n = 1
r.append({**d}.keys() == d.keys())
if o.n > 2: r.append('n'); o.n = 0
if len(a) > 3: del a[1:]
if p.sum() > 3: a.append('big')
r.append(p.sum().item() + o.n)
a.append(p.sum().item())
d['t'] = p * 2
r.append(d.get('t', 0))
o.self = o
r.append(copy.copy(d))
r.append(copy.deepcopy(a[:1]))
a += [k]
a *= 2
d |= {'q': k}
s |= {k, 7}
s ^= {k}
r.append(f'{a!r:.40}')
print(len(a), k)
r.append(tuple(a))
r.append(d)
r.append(a)
""",
        """
a.append(j)
a.clear()
a[:] = [1, 2]
b[:] = [a, j]
d['x'] = a
d['y'] = j
d.clear(); d.update(x=a, y=1)
o.d = d
o.n = j
o.n = float(j)
s.clear(); s.update({1, j})
dq.clear(); dq.extend([a, j])
lst[:] = [torch.ones(2) * j, 1.5]
lst.append(t0)
t0.add_(1)
od.clear(); od.update(a=1, b=a)
dd.clear()
dd[j] = a
o.__dict__ = {'d': d, 'n': j}
a[:1] = [True]
pass
pass
d = dict(d)
a = list(a)
r = f(torch.ones(2), 1)
""",
        ["torch.ones(2)", "torch.arange(2.0)", "torch.ones(2)*3", "t0"],
    ),
    "views": Group(
        """
import numpy as np
base = torch.arange(6.0); v = base[1:4]; w = base.view(2, 3); x2 = base[::2]; par = torch.nn.Parameter(torch.ones(3)); arr = np.arange(4.0, dtype=np.float32); ta = torch.from_numpy(arr)
cell = [base, v, w]; buf = torch.zeros(3); other = base
p0 = torch.ones(3)
""",
        """
base.add_(1)
v.mul_(2)
w[0].fill_(k)
w.t_()
r.append(v.clone())
r.append(w)
r.append(v + w.reshape(-1)[:3])
x2.copy_(p)
p.add_(1)
p[0] = k
p.data = p.data * 2
p.data = v.clone()
r.append(p)
r.append(p.view(-1)[1:])
r.append(v[1:])
q = p.view(-1); q.add_(1)
q = v[:2]; q.zero_(); r.append(q)
cell[0] = p
cell[0].add_(1)
r.append(cell[1] is v)
r.append(cell[0] is base)
arr += 1
arr[0] = k
ta.add_(1)
r.append(arr.copy())
r.append(arr)
r.append(ta)
r.append(ta * 1)
r.append(p.numpy())
r.append(torch.from_numpy(arr))
n = p.numpy(); n[0] = 7
n = v.numpy(); r.append(n.sum())
par.data.add_(1)
par.data = p.clone()
with torch.no_grad(): par.add_(p)
r.append(par * 2)
(par * p).sum().backward()
par.grad = None
r.append(par.grad)
buf = p * 2
buf.copy_(v)
buf = buf + v
buf[1] = base[2]
r.append(buf)
if buf.sum() > 4: r.append(1)
if base[1] > 2: base.zero_()
r.append(base[2].item())
base[int(base[0].item()) % 3] = k
r.append(base.tolist())
torch.add(p, 1, out=buf)
torch.mul(v, 2, out=base[3:])
r.append(base.untyped_storage().data_ptr() == v.untyped_storage().data_ptr())
r.append(v._version - v._version)
other = other + 1
other.add_(1)
r.append(other is base)
base.resize_(6)
v.set_(base)
base.swapaxes_(0, 0)
w.squeeze_()
w.unsqueeze_(0)
r.append(w.shape)
r.append(base.split(2))
a, b = base.chunk(2); a.add_(b)
r.append(torch.cat([v, p]))
p.requires_grad_(False)
v.index_fill_(0, torch.tensor([0]), k)
base.masked_fill_(base > 3, k)
base[base > 2] = 0
r.append(base[base > 1])
r.append(base.nonzero())
r.append(p.expand(2, 3))
base.as_strided((2,), (1,)).add_(1)
p.copy_(v)
v.copy_(p)
""",
        """
base.add_(j)
base = torch.arange(6.0) + j
v = base[1:4]
v = base[2:5]
v = torch.ones(3) * j
w = base.view(2, 3)
cell[:] = [base, v, w]
cell[:] = [v, base, w]
arr += j
arr = np.arange(4.0, dtype=np.float32) + j
ta = torch.from_numpy(arr)
par.data = torch.ones(3) * j
par.grad = None
buf = torch.zeros(3)
buf = v
buf = base[3:]
other = base
other = torch.arange(6.0)
p0 = base[:3]
p0 = torch.ones(3)
p0 = v
p0 = ta[1:]
pass
pass
base = torch.arange(6.0).double()
""",
        ["p0", "torch.ones(3)", "torch.arange(3.0)", "base[:3]", "v"],
    ),
    "closures": Group(
        """
import functools
count = 0
def mk(n):
    def step(q):
        nonlocal n
        n += 1
        return q * n
    def get(): return n
    return step, get
step, get = mk(0)
kept = []
def deflt(q, acc=[]):
    acc.append(len(acc)); return q + len(acc)
def glob(q):
    global count
    count += 1
    return q + count
part = functools.partial(deflt, acc=kept)
class K:
    c = 0
    def __init__(self): self.f = step
    def __call__(self, q): type(self).c += 1; return q * self.c
    @property
    def pr(self): return self.__dict__.setdefault('pv', 1)
    def m(self, q): return self.f(q)
    @staticmethod
    def sm(q): return q + K.c
    @classmethod
    def cm(cls, q): cls.c = cls.c + 1; return q
o = K()
def gen(q):
    for i in range(3):
        got = yield q + i
        if got: q = q + got
def deco(g):
    @functools.wraps(g)
    def inner(*a, **kw): inner.calls = getattr(inner, 'calls', 0) + 1; return g(*a, **kw)
    return inner
dec = deco(glob)
""",
        """
r.append(step(p))
r.append(get())
r.append(glob(p))
r.append(count)
r.append(deflt(p))
r.append(part(p))
kept.append(lambda: p * k)
r.append(kept[-1]() if callable(kept[-1]) else 0)
kept.append(step)
kept.append(k)
r.append(o(p))
r.append(o.pr)
o.pv = k
r.append(o.m(p))
o.f = glob
o.f = functools.partial(glob)
o.f = lambda q: q * k
r.append(o.sm(p))
r.append(o.cm(p))
K.c = k
K.m = lambda self, q: q + k
K.sm = staticmethod(glob)
o.m = step
r.append(K.c)
g = gen(p); r.append(next(g)); r.append(g.send(k))
g = gen(p); kept.append(g)
r.append([q for q in gen(p)])
r.append(dec(p))
r.append(getattr(dec, 'calls', 0))
dec.calls = 0
r.append(dec.__wrapped__ is glob)
step.__defaults__ = (k,)
deflt.__defaults__ = ([k],)
deflt.__defaults__[0].append(k)
r.append(deflt.__defaults__)
s2, g2 = mk(k); s2(p); r.append(g2()); kept.append(g2)
count += 1
count = p.sum().item()
count = count * 2 % 7
if p.sum() > 2: r.append(step(p))
if count > 3: count = 0
while p.sum() > 10: p = p / 2; r.append(glob(p))
try: kept[10]
except IndexError: r.append(step(p))
try:
    if p.sum() > 2: raise ValueError(k)
except ValueError as e: r.append(e.args)
finally: r.append(glob(p))
step.__closure__[0].cell_contents = k
r.append(step.__closure__[0].cell_contents)
r.append(functools.reduce(lambda x, y: x + y, [p, step(p)]))
r.append(list(map(step, [p, p])))
r.append(sorted([3, 1, 2], key=lambda q: -q * count))
r.append((lambda *a, z=count: z)(p))
def inner(q=count): return q + k
kept.append(inner); r.append(inner())
class L: y = k
r.append(L().y)
r.append(type(o).c)
r.append(isinstance(o, K))
del o.f
o.__class__ = K
r.append(hasattr(o, 'pv'))
r.append(vars(o).copy())
print(count, k)
print(p.sum().item())
r.append(f'{count} {k}')
""",
        """
count = j
count = float(j)
step, get = mk(j)
step.__closure__[0].cell_contents = j
kept.clear()
deflt.__defaults__ = ([],)
o = K()
o.f = step
K.c = j
K.m = lambda self, q: self.f(q) + j
o.pv = j
del o.pv
dec = deco(step)
glob = lambda q: q - j
glob.__code__ = (lambda q: q * 3).__code__
part = functools.partial(deflt)
part.keywords['acc'] = [j]
pass
pass
K.__call__ = lambda self, q: q
K.pr = property(lambda self: j)
K.pr = 5
r = f(torch.ones(2), 1)
r2 = [q() for q in kept if callable(q) and q is not step]
""",
        ["torch.ones(2)", "torch.arange(2.0)", "torch.ones(2)*3"],
    ),
    "modules": Group(
        """
import torch.nn as nn
class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(2, 2); self.n = 0
        self.register_buffer('b', torch.zeros(2))
        self.bn = nn.BatchNorm1d(2)
        self.items = nn.ModuleList([nn.Linear(2, 2), nn.ReLU()])
    def forward(self, x):
        self.n += 1
        return self.l(x) + self.b
torch.manual_seed(0)
m = M(); m2 = M(); log = []
def hook(mod, i, o): log.append(len(log)); return o * 2
def pre(mod, i): log.append('pre')
h = None
""",
        """
r.append(m(p))
r.append(m.l(p))
m.b.add_(1)
m.b = p.sum(0).detach()
m.b = m.b + 1
r.append(m.b)
r.append(m.n)
m.n = k
r.append(m.bn(p))
m.bn.train()
m.bn.eval()
m.train()
m.eval()
m.train(not m.training)
r.append(m.training)
r.append([q.shape for q in m.parameters()])
r.append([n for n, q in m.named_modules()])
r.append(list(m.state_dict()))
m.l.weight.data.mul_(2)
with torch.no_grad(): m.l.weight.add_(1)
m.l = m2.l
m.l.bias = None
m.l.bias = nn.Parameter(torch.ones(2) * k)
r.append(m.l is m2.l)
m.x = p * k
r.append(getattr(m, 'x', 0))
m.register_buffer('bb', p.clone())
r.append(dict(m.named_buffers()).keys())
m.items.append(nn.Tanh())
r.append(len(m.items))
for q in m.items: p = q(p)
r.append(p)
r.append(m.items[k % 2](p))
m.items[0] = m2.items[0]
h2 = m.l.register_forward_hook(hook); r.append(m.l(p)); h2.remove()
m(p).sum().backward()
m.zero_grad()
r.append(m.l.weight.grad)
m.l.weight.grad = None
m.l.weight.requires_grad_(False)
m.requires_grad_(True)
m.__dict__['n'] = k
r.append('n' in m.__dict__)
del m.n; m.n = 1
m.forward = lambda x: x * k
m.__dict__.pop('forward', None)
m2.load_state_dict(m.state_dict())
r.append(m2(p))
m.double()
m.float()
if m.b.sum() > 2: r.append('b'); m.b.zero_()
if m.l(p).sum() > 0: m.n += 1
m.add_module('extra', m2)
m._modules.pop('extra', None)
r.append(hasattr(m, 'extra'))
m.apply(lambda q: log.append(type(q).__name__))
r.append(nn.functional.dropout(p, 0.5, m.training))
m.to(torch.float32)
r.append(torch.func.functional_call(m, {'b': p[0]}, (p,)))
r.append(m._forward_hooks)
r.append(repr(m.l))
r.append(m.get_parameter('l.weight').sum())
setattr(m.l, 'weight', nn.Parameter(torch.eye(2)))
r.append(next(m.parameters()) is m.l.weight)
""",
        """
m.n = j
m.b.add_(j)
m.b = torch.ones(2) * j
m.l = nn.Linear(2, 2)
m.l = m2.l
m.l.weight.data.add_(1)
m.l.weight = nn.Parameter(torch.ones(2, 2))
m.l.bias = None
m.train()
m.eval()
m.bn.eval()
m.items[0] = nn.Identity()
m.forward = lambda x: x + j
m.__dict__.pop('forward', None)
M.forward = lambda self, x: x - j
h = m.register_forward_hook(hook)
h = m.l.register_forward_pre_hook(pre)
if h: h.remove()
m2.b.mul_(3)
m.zero_grad()
m.l.weight.requires_grad_(False)
m.x = j
m = M()
pass
torch.manual_seed(j)
m.bn.momentum = 0.5
""",
        [
            "torch.ones(2,2)",
            "torch.arange(4.0).view(2,2)",
            "torch.ones(3,2)",
            "torch.ones(2,2).requires_grad_()",
        ],
    ),
    "data": Group(
        """
state = [0]; o = {'n': 0, 'best': 9.0}; tens = torch.zeros(3); log = []; tab = [torch.ones(3), torch.zeros(3), torch.arange(3.0)]; names = ['a', 'b', 'c', 'd']
import random, math
import numpy as np
na = np.arange(6.0)
""",
        """
n = p.sum().item()
n = int(p.sum().item())
n = p.argmax().item()
n = p.tolist()[0]
n = len(p.nonzero())
n = (p > 1).sum().item()
n = float(p.max())
n = n + 1
n = n * 2
n = n % 3
n = -n
n = n / 2
n = max(n, k)
n = abs(n)
n = round(n)
r.append(n)
r.append(p * n)
r.append(names[int(n) % 4])
r.append(tab[int(n) % 3])
tab[int(n) % 3] = p
tab[int(n) % 3].add_(1)
log.append(n)
log.append(f'{n:.2f}')
print(n)
o['n'] = n
o['n'] += n
o['best'] = min(o['best'], n)
if n > 1: r.append('gt'); state[0] += 1
if n < o['best']: o['best'] = n
if o['n'] > 3: o['n'] = 0
state[0] = n
state.append(n)
r.append(state[-1])
r.append(len(state))
r.append(torch.zeros(int(abs(n)) % 4 + 1))
r.append(p[:int(abs(n)) % 3])
r.append(p[int(n) % 3])
p[int(n) % 3] = k
p.mul_(n)
tens.add_(n)
tens[int(n) % 3] += 1
r.append(tens.sum())
r.append(tens.clone())
r.append([i * n for i in range(2)])
r.append({'n': n, n: 1})
r.append(n in names or n in state)
r.append(n == k)
r.append(isinstance(n, int))
r.append(str(n))
r.append((n, p))
r.append(na[int(n) % 6])
na[int(n) % 6] = k
r.append(na * n)
r.append(np.float32(n))
r.append(random.random() * n)
r.append(torch.rand(2) * n)
if random.random() > 0.5: r.append('rnd')
if torch.rand(1) > 0.5: r.append('trnd'); log.append(1)
r.append(np.random.rand())
random.shuffle(names)
try: r.append(1 / n)
except ZeroDivisionError: log.append('zero')
try:
    if n > 2: raise ValueError(n)
    log.append('no')
except ValueError as e: r.append(e.args); state.append(0)
for i in range(int(abs(n)) % 3): p = p + i; log.append(i)
while p.sum() > 20: p = p / 2; log.append('h')
assert n < 100
r.append(math.sqrt(abs(n)))
r.append(torch.full((2,), float(n)))
r.append(torch.tensor([n, k]))
r.append(torch.arange(int(abs(n)) % 5))
r.append(p.clamp(max=n))
r.append(torch.where(p > n, p, tens))
m = p[p > 1]; r.append(m); r.append(m.shape[0])
m = p[p > 1]; log.append(len(m))
r.append(sorted([n, k, 2]))
r.append(sum([n, k]))
r.append(divmod(n, 3))
x, *y = p.tolist(); r.append(y); state[0] = x
r.append(bool(n))
r.append(n is state[0])
setattr_ = state.insert(0, n)
del state[1:]
o = {**o, 'n': n}
r.append(hash(n))
r.append('%s' % n + names[0])
r.append(int(n).bit_length())
n = int(n) << 1
""",
        """
state[:] = [j]
o['n'] = j
o['best'] = 9.0
o['best'] = j
tens.zero_()
tens = torch.ones(3) * j
log.clear()
tab[0] = torch.ones(3) * j
tab.reverse()
names.reverse()
names[:] = ['x', 'y', 'z', 'w']
na = np.arange(6.0) + j
na[0] = j
random.seed(j)
torch.manual_seed(j)
pass
pass
pass
""",
        [
            "torch.ones(3)",
            "torch.arange(3.0)",
            "torch.tensor([2.0,0.5,1.0])",
            "torch.tensor([-1.0,3.0,2.5])",
            "torch.zeros(3)",
            "torch.tensor([4.0,-2.0,0.5])",
        ],
    ),
    "classes": Group(
        """
import dataclasses, enum, collections
class Meta(type):
    tag = 1
    def __call__(cls, *a, **k):
        r = super().__call__(*a, **k)
        cls.made = getattr(cls, 'made', 0) + 1
        return r
class B:
    base = 1
    __slots__ = ('sl', '__dict__')
    def who(self): return 'B', self.base
    @property
    def dbl(self): return self.base * 2
    @dbl.setter
    def dbl(self, v): self.base = v
    def __getattr__(self, n):
        if n.startswith('dyn'): return len(n) + self.base
        raise AttributeError(n)
    def __len__(self): return self.base % 4
    def __eq__(self, other): return isinstance(other, B) and self.base == other.base
    __hash__ = object.__hash__
class C(B, metaclass=Meta):
    cnt = 0
    def who(self): return super().who() + (self.cnt,)
    def __setattr__(self, n, v):
        object.__setattr__(self, n, v)
        type(self).cnt += 1
class Desc:
    def __init__(self): self.v = 0
    def __get__(self, o, t=None): return self if o is None else self.v
    def __set__(self, o, v): self.v = v
class DH:
    d = Desc()
    nd = 5
@dataclasses.dataclass
class R:
    a: int = 1
    b: object = None
class E(enum.Enum):
    X = 1
    Y = 2
P = collections.namedtuple('P', 'x y')
b = B(); c = C(); h = DH(); h2 = DH(); rec = R(); e = E.X; pt = P(1, [2]); log = []
""",
        """
r.append(b.who())
r.append(c.who())
b.base = k
b.base += 1
B.base = k
B.base += 1
C.base = k
del C.base
r.append(b.dbl)
b.dbl = k
r.append(c.cnt)
C.cnt = 0
r.append(C.made)
n = C(); r.append(n.cnt)
n = C(); n.base = k; r.append(n.who()); log.append(n)
b.sl = k
r.append(b.sl)
r.append(getattr(b, 'sl', None))
del b.sl
b.sl = [k]; b.sl.append(1); r.append(b.sl)
r.append(b.dynx)
r.append(hasattr(b, 'zzz'))
r.append(len(b))
r.append(bool(b))
r.append(b == c)
r.append(h.d)
h.d = k
h.d += 1
r.append(h2.d)
DH.d = k
DH.d = Desc()
h.nd = k
r.append((h.nd, h2.nd))
DH.nd += 1
r.append(type(h).nd)
rec.a = k
rec.a += 1
r.append(rec)
rec.b = [rec.a]
rec = dataclasses.replace(rec, b=p)
r.append(rec == R(k))
r.append(dataclasses.asdict(R(k, [1])))
e = E.Y if k > 1 else E.X
r.append(e.name)
r.append(E(k))
pt.y.append(k)
pt = pt._replace(x=k)
r.append(pt)
x, y = pt; r.append(x)
B.who = lambda self: ('new', self.base)
c.who = lambda: k
del c.who
r.append(c.__class__.__name__)
b.__class__ = B
b.__class__ = C
r.append(isinstance(b, C))
r.append(type(b).__mro__[0].__name__)
r.append(sorted(vars(b)))
b.__dict__['w'] = k
r.append(b.__dict__)
b.__dict__ = {'base': k}
setattr(C, 'q%d' % k, p)
r.append(hasattr(C, 'q1'))
r.append(sorted(n for n in vars(C) if n[0] == 'q'))
Meta.tag = k
r.append(C.tag)
r.append(super(C, c).who())
r.append(B.who(c))
r.append(b.who.__func__ is B.who)
m = b.who; b.base = k; r.append(m())
log.append(b.who)
r.append([q() for q in log if callable(q) and not isinstance(q, B)][:1])
r.append([type(q).__name__ for q in log])
log.clear()
class L(B): z = k
r.append(type(B.who))
vars(b).pop('base', None)
vars(c).clear()
if b.base > 2: b.base = 0
if p.sum() > 2: b.base = p.sum().item()
r.append(b.base * p)
r.append(f'{b.base} {rec.a}')
r.append({b.base: k, rec.a: 1})
match rec:
    case R(a=1): r.append('one')
    case R(a=q): r.append(q)
r.append(callable(b))
r.append(int(len(c)))
r.append(sorted([b, c], key=lambda q: q.base)[0] is b)
print(b.base, rec)
B.__len__ = lambda self: k
r.append(max(b.base, k))
""",
        """
b.base = j
B.base = j
C.base = j
C.cnt = j
b = B()
c = C()
b = C()
h = DH()
h.d = j
DH.nd = j
rec = R(j)
rec.a = float(j)
rec.a = True
R.a = j
R.b = j
e = E.Y
pt = P(j, [j])
pt.y.append(j)
B.who = lambda self: ('w', j)
B.dbl = property(lambda self: j)
B.dbl = j
B.__getattr__ = lambda self, n: j
B.__len__ = lambda self: j
B.__eq__ = lambda self, o: True
Meta.tag = j
C.made = j
C.__setattr__ = object.__setattr__
b.sl = j
b.__dict__.clear()
b.who = lambda: j
log.clear()
log.append(b.who)
c.__class__ = B
b.__class__ = B
pass
pass
""",
        ["torch.ones(2)", "torch.ones(2)*3"],
    ),
    "exceptions": Group(
        """
import contextlib, sys, warnings, logging
log = []; state = {'n': 0, 'open': 0}
class CM:
    n = 0
    def __init__(self, swallow=False): self.swallow = swallow
    def __enter__(self): self.n += 1; state['open'] += 1; log.append(('in', self.n)); return self
    def __exit__(self, t, v, tb): state['open'] -= 1; log.append(('out', t and t.__name__)); return self.swallow
cm = CM(); sw = CM(True)
@contextlib.contextmanager
def gcm(v):
    state['n'] += 1
    try: yield v * 2
    except KeyError: log.append('key')
    finally: log.append('fin')
class MyErr(Exception):
    def __init__(self, a): super().__init__(a); self.a = a
def risky(q, lim):
    if q.sum() > lim: raise MyErr(lim)
    log.append('safe'); return q
def deep(n):
    if n <= 0: raise ValueError(state['n'])
    try: return deep(n - 1)
    finally: state['n'] += 1
err = None
def warnf(k): warnings.warn(Notice('w%d' % k))
kept = []
""",
        """
with cm: r.append(state['open'])
with cm as q: r.append(q.n)
with sw: raise KeyError(k)
with sw: risky(p, k)
with cm, sw: risky(p, k)
with gcm(k) as v: r.append(v)
with gcm(p) as v: raise KeyError
with contextlib.suppress(MyErr): risky(p, k)
with contextlib.suppress(KeyError): risky(p, k)
with torch.no_grad(): r.append(risky(p, k))
with contextlib.ExitStack() as st: st.enter_context(cm); st.callback(log.append, k); risky(p, k)
with contextlib.redirect_stdout(None): r.append(k)
try: risky(p, k)
except MyErr as e: r.append(e.a)
try: risky(p, k)
except MyErr as e: kept.append(e)
try: deep(k)
except ValueError as e: r.append(e.args)
try: deep(2)
finally: log.append('f')
try: risky(p, 1)
except MyErr as e: raise ValueError(k) from e
try: risky(p, 1)
except MyErr: raise
try: r.append({}[k])
except KeyError as e: r.append(str(e))
else: log.append('else')
finally: state['n'] += 1
try: risky(p, k); log.append('no')
except Exception: state['n'] = 0
try: [][k]
except IndexError: r.append(sys.exc_info()[0].__name__)
for i in range(3):
    try:
        if i == k: continue
        if i > p.sum(): break
        r.append(i)
    finally: log.append(i)
while state['n'] < 3:
    state['n'] += 1
    try: risky(p, state['n'])
    except MyErr: break
if p.sum() > 3: raise MyErr(k)
if state['n'] > 4: state['n'] = 0; raise ValueError('big')
assert p.sum() < 100, k
assert k < 3
state['n'] += 1
log.append(p.sum().item())
log.append(state['n'])
print('n', state['n'], k)
print(p.sum().item())
warnf(k)
warnings.warn(Notice('x'))
r.append(len(kept))
r.append([type(q).__name__ for q in kept])
kept[-1].a = k
r.append(kept[-1].a if kept else None)
raise kept[-1]
err = kept[-1] if kept else None
r.append(err)
def g():
    try: yield p
    finally: log.append('closed')
for q in g(): r.append(q); break
gg = g(); r.append(next(gg)); gg.close()
r.append(next(iter([]), k))
r.append(p.view(k, -1))
r.append(p[k])
r.append(torch.cat([p, p.view(-1)[:k]]))
p.add_(1)
p.mul_(state['n'])
int('x' * k)
return r
try: return [k]
finally: log.append('ret')
lambda: risky(p, k)
r.append(cm.n)
CM.n = k
cm.swallow = True
cm.swallow = not cm.swallow
""",
        """
state['n'] = j
state['open'] = 0
cm.swallow = True
cm.swallow = False
CM.n = j
cm.n = j
CM.__exit__ = lambda self, *a: True
CM.__exit__ = lambda self, *a: log.append(len(a))
cm = CM()
sw = CM()
sw = CM(True)
log.clear()
kept.clear()
kept.append(MyErr(j))
kept.append(ValueError(j))
deep = lambda n: n
risky = lambda q, lim: q * lim
MyErr.__init__ = lambda self, a: None
err = None
pass
pass
pass
""",
        ["torch.ones(2)", "torch.arange(2.0)", "torch.ones(2)*3", "torch.zeros(2)"],
    ),
    "random numbers": Group(
        """
import random, numpy as np
R = random.Random(1); N = np.random.RandomState(2); NG = np.random.default_rng(3); TG = torch.Generator().manual_seed(4)
names = ['a', 'b', 'c', 'd']; drop = torch.nn.Dropout(0.5); buf = torch.zeros(3); log = []; st = {'n': 0, 's': None}
def noise(q, g=None): return q + torch.randn(q.shape, generator=g)
""",
        """
r.append(random.random())
r.append(R.random())
r.append(R.randint(0, k + 3))
r.append(random.choice(names))
r.append(R.choice(names))
r.append(R.sample(names, 2))
r.append(random.uniform(0, k + 1))
r.append(R.gauss(0, 1))
random.shuffle(names)
R.shuffle(names)
r.append(N.rand())
r.append(N.randint(k + 2))
r.append(np.random.rand(2))
r.append(np.random.normal())
r.append(NG.random())
r.append(NG.integers(0, k + 2, 3))
r.append(NG.normal(size=2))
r.append(NG.permutation(3))
r.append(torch.rand(2))
r.append(torch.rand(2, generator=TG))
r.append(noise(p))
r.append(noise(p, TG))
r.append(torch.randperm(4))
r.append(torch.randperm(4, generator=TG))
r.append(torch.randint(0, k + 2, (2,)))
r.append(torch.bernoulli(torch.full((3,), 0.5)))
r.append(torch.multinomial(torch.ones(4), 2))
r.append(drop(p))
r.append(torch.nn.functional.dropout(p, 0.3))
buf.normal_()
buf.uniform_(generator=TG)
p.bernoulli_()
r.append(buf.sum())
drop.train()
drop.eval()
drop.train(k > 1)
drop.p = 0.25
torch.manual_seed(k)
random.seed(k)
R.seed(k)
np.random.seed(k)
TG.manual_seed(k)
R.setstate(R.getstate())
st['s'] = torch.get_rng_state()
torch.set_rng_state(st['s'])
if random.random() > 0.5: r.append('r'); log.append(1)
if R.random() > 0.5: st['n'] += 1
if N.rand() > 0.5: r.append(N.rand())
if NG.random() > 0.5: r.append(torch.rand(1))
if torch.rand(1) > 0.5: r.append('t'); log.append(random.random())
if torch.rand(1, generator=TG) > 0.5: r.append(R.random())
if p.sum() > 3: r.append(torch.rand(1)); r.append(random.random())
if p.sum() > 3: torch.manual_seed(7)
n = random.randint(0, 3); r.append(p * n); r.append(p[:n])
n = int(torch.randint(0, 3, (1,))); r.append(torch.zeros(n))
n = NG.integers(3); r.append(names[n])
n = R.randrange(3); r.append([q * n for q in names]); log.append(n)
for _ in range(random.randint(0, 2)): r.append(torch.rand(1))
while random.random() < 0.5: r.append(R.random())
r.append([random.random() for _ in range(2)])
st['n'] += 1
r.append(st['n'])
print(random.random())
log.append(torch.rand(1).item())
r.append(f'{random.random():.3f}')
r.append(p.sum().item() * random.random())
try:
    if random.random() > 0.5: raise ValueError(R.random())
    r.append(torch.rand(1))
except ValueError as e: r.append(e.args)
with torch.random.fork_rng(): r.append(torch.rand(1))
r.append(random.getrandbits(k + 1))
r.append(torch.empty(2).exponential_())
r.append(torch.nn.init.normal_(torch.empty(2)))
r.append(torch.normal(p, 1.0))
r.append(torch.distributions.Normal(p, 1.0).sample())
r.append(max(names, key=lambda q: random.random()))
r.append(sorted(names, key=lambda q: R.random()))
""",
        """
random.seed(j)
R.seed(j)
R = random.Random(j)
N = np.random.RandomState(j)
NG = np.random.default_rng(j)
TG = torch.Generator().manual_seed(j)
TG.manual_seed(j)
torch.manual_seed(j)
np.random.seed(j)
names = ['a', 'b', 'c', 'd']
names.reverse()
names.append('z')
drop.p = 0.1
drop.eval()
drop.train()
buf = torch.zeros(3)
R.random()
random.random()
torch.rand(1)
st['n'] = j
log.clear()
R = random
TG = torch.default_generator
N = np.random
pass
pass
""",
        ["torch.ones(3)", "torch.arange(3.0)", "torch.ones(3)*2"],
    ),
    "gradients": Group(
        """
w = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
u = torch.nn.Parameter(torch.tensor([0.5, 3.0]))
opt = torch.optim.SGD([w, u], lr=0.1, momentum=0.9)
kept = []; m = []; p0 = torch.tensor([3.0, 4.0])
w.grad = torch.ones(2); w.grad.tag = 1
""",
        """
w.grad.mul_(2)
w.grad.add_(p)
w.grad.zero_()
w.grad = None
w.grad = p.clone()
w.grad = u.grad
w.grad = p
(w*p).sum().backward()
(w*u).sum().backward()
(w*2).sum().backward(create_graph=True)
r.append(w.grad)
r.append(w.grad is u.grad)
r.append(w.grad is p)
r.append(getattr(w.grad,'tag',0))
w.grad.tag = k
kept.append(w.grad)
r.append(kept[-1] if kept else 0)
r.append(w.grad.sum().item())
r.append(w.grad.clone())
if w.grad is not None and w.grad.sum() > 2: r.append('big')
r.append(w.grad.grad)
w.grad.data = p.clone()
w.grad.data.add_(1)
w.data = w.data - w.grad
w.grad = w.grad + p
w.grad = w.grad.detach()
w.grad, u.grad = u.grad, w.grad
r.append(w.grad[0:1])
w.grad[0] = k
del w.grad
g = w.grad; w.grad = None; w.grad = g
r.append(w.grad.shape)
r.append(w.grad.requires_grad)
torch.nn.utils.clip_grad_norm_([w,u], 1.0)
opt.step()
opt.zero_grad()
opt.zero_grad(set_to_none=False)
w.grad.numpy()[0] = 5
r.append(w.grad.numpy())
n = w.grad.numpy(); w.grad.add_(1); r.append(n)
w.requires_grad_(False)
w.requires_grad_(True)
r.append(w.grad.tolist())
w.grad.copy_(p)
w.grad.t = w.grad
r.append(u.grad.data_ptr() == w.grad.data_ptr())
torch.autograd.grad((w*u).sum(), [w])
(w.detach() * p).sum()
with torch.no_grad(): w -= w.grad
with torch.no_grad(): w.add_(p)
setattr(w, 'grad', p * 2)
m.append(w.grad.tag if hasattr(w.grad, 'tag') else None)
""",
        """
w.grad = torch.ones(2) * j
w.grad = None
u.grad = w.grad
u.grad = torch.ones(2)
w.grad.tag = j
w.grad.mul_(2)
w.grad = w.grad.clone() if w.grad is not None else None
kept.clear()
kept.append(w.grad)
w.grad = torch.ones(4)[::2]
w.grad = torch.ones(3)[1:]
w.grad = p0
pass
pass
w.requires_grad_(True)
w.grad = u.grad[:]
""",
        ["p0", "torch.ones(2) * 2", "torch.arange(2.0)"],
    ),
}


def _lines(text):
    found = []
    for line in text.strip("\n").splitlines():
        if line.startswith((" ", "except", "finally", "else:")):
            found[-1] += "\n" + line
        else:
            found.append(line)
    return found


def _indented(text, by):
    return "".join(f"{' ' * by}{line}\n" for line in text.splitlines())


def program_of(name, rng):
    """A program of a group."""
    group = GROUPS[name]
    uses = [rng.choice(_lines(group.uses)) for _ in range(rng.randint(2, 6))]
    if name == "data":
        uses.insert(0, "n = p.sum().item()")
    body = "".join(_indented(use, 4) for use in uses)
    steps = ""
    for j in range(_CALLS):
        for _ in range(rng.choice((0, 0, 1, 1, 2)) if j > 1 else 0):
            change = _indented(rng.choice(_lines(group.changes)), 8)
            steps += f"    j = {j}\n    try:\n{change}    except Exception:\n        pass\n"
        k = rng.choice(_NUMBERS) if j > 3 or rng.random() < 0.4 else "1"
        steps += f"    r = attempt(f, {rng.choice(group.tensors)}, {k})\n    yield r\n"
    source = (
        f"import copy\nimport torch\n{group.world}\ndef f(p, k):\n    r = []\n{body}    return r\n\n"
        f"target = f\n\ndef steps(f):\n{steps}"
    )
    return grammar.declare_globals(source, _names(group.world))


def _names(world):
    """The names of a world that a program may assign."""
    tree = ast.parse(world)
    top = [node for s in tree.body if isinstance(s, ast.Assign) for node in ast.walk(s)]
    found = {n.id for n in top if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return found | {s.name for s in tree.body if isinstance(s, ast.FunctionDef)}


def program(seed):
    """The program of a seed."""
    rng = random.Random(seed)
    return program_of(rng.choice(sorted(GROUPS)), rng)
