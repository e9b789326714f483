"""Numbers that differ in every call, put through everything that takes a number.

Owns: one expression a line, evaluated with numbers `n` and `m` that come from a tensor's data or
its sizes, from a counter, or as arguments, for several calls in turn, eagerly and compiled
(followed.py). A number that reaches C code unseen would stay what it was in the first call. Does
not own what C code is handed while it runs (unwatched/test_values_given_to_c.py) nor what else a program does (the files
beside this one).
"""

# ruff: noqa: E501

from tests.soundness.number_sources import check_all

EXPRESSIONS = r"""
list(map(abs, (v for v in (n, -m))))
[v for v in map(abs, (v for v in (n, -m)))]
tuple(map(str, (v for v in (n, m))))
list(map(float.__add__, (v for v in (n, m)), (v for v in (m, n))))
list(filter(None, (v for v in (n-n, m))))
list(filter(math.isfinite, (v for v in (n, m))))
functools.reduce(operator.add, (v for v in (n, m)))
functools.reduce(max, [n, m])
functools.reduce(lambda a, b: a+b, [n, m])
sum(v for v in (n, m))
sum(map(lambda v: v*2, [n, m]))
min(v for v in (n, m))
max((n, m), key=lambda v: -v)
sorted([n, m, 2.5])
sorted((v for v in (n, m)), key=lambda v: -v)
sorted([(n, 'a'), (m, 'b')])
sorted({n: 1, m: 2})
sorted({'a': n, 'b': m}.items(), key=operator.itemgetter(1))
sorted([types.SimpleNamespace(v=n), types.SimpleNamespace(v=m)], key=operator.attrgetter('v'))[0].v
any(v > 3 for v in (n, m))
all(v > 3 for v in (n, m))
any(map((3.0).__lt__, (v for v in (n, m))))
list(zip((v for v in (n, m)), (m, n)))
list(enumerate(v for v in (n, m)))
dict(zip('ab', (n, m)))
dict(a=n, b=m)
dict([(n, 'a'), (m, 'b')])
dict((v, 1) for v in (n, m))
{v: 1 for v in (n, m)}
{n, m}
set((n, m))
set(v for v in (n, m))
frozenset([n, m])
len({n, m, 2.0})
math.fsum(v for v in (n, m))
math.fsum([n, m])
math.prod((n, m))
math.hypot(n, m)
math.dist([n], [m])
heapq.nlargest(1, [n, m, 3.0])
heapq.nsmallest(2, (v for v in (n, m, 3.0)))
(lambda h: (heapq.heapify(h), heapq.heappop(h)))([m, n, 1.0])
(lambda h: (heapq.heappush(h, n), heapq.heappush(h, m), h))([])
list(heapq.merge([n], [m]))
bisect.bisect([1.0, 5.0, 9.0], n)
(lambda l: (bisect.insort(l, n), l))([1.0, 5.0])
(lambda d: (d.extend(v for v in (n, m)), d))(collections.deque())
collections.deque((n, m))
array.array('d', [n, m])
array.array('d', (v for v in (n, m)))
array.array('d', (v for v in (n, m))).tolist()
bytes([int(n) % 256, int(m) % 256])
bytes(int(v) % 256 for v in (n, m))
bytearray(int(v) % 256 for v in (n, m))
struct.pack('dd', *(v for v in (n, m)))
struct.pack('dd', n, m)
"%s-%s" % (n, m)
"%s".__mod__(n)
"%.2f" % n
"%(a)s" % {'a': n}
"{:.1f}".format(n)
"{} {}".format(*(v for v in (n, m)))
"{a}".format(a=n)
"{0[a]}".format({'a': n})
"{0.real}".format(n)
"{x}".format_map({'x': n})
", ".join(map(str, (v for v in (n, m))))
", ".join(str(v) for v in (n, m))
f"{n:.2f} {m!r}"
str([n, m])
repr({'a': n})
str((n, (m,)))
repr([[[[[n]]]]])
str({n})
str(collections.OrderedDict(a=n))
repr(types.SimpleNamespace(v=n))
json.dumps([n, {'m': m}])
json.dumps({'k': {'l': [[[[n]]]]}})
hash((n, m))
hash(n)
n in [1.0, 6.0]
[n, m].index(m)
[n, m].count(6.0)
(n, m) == (6.0, 14.0)
[n] < [m]
[[n]] == [[6.0]]
{'a': n} == {'a': 6.0}
{'a': n}['a'] * 2
[1, 2, 3, 4, 5, 6, 7][int(n) % 7]
"abcdefg"[int(n) % 7]
(1, 2, 3, 4)[int(n) % 4:]
list(range(int(n) % 5))
list(range(10))[int(n) % 5:int(n) % 5 + 2]
range(int(n))[1:]
len(range(int(n)))
[0] * (int(n) % 5)
"ab" * (int(n) % 3)
list(itertools.repeat(1, int(n) % 4))
list(itertools.islice(range(10), int(n) % 4))
list(itertools.accumulate([n, m]))
list(itertools.accumulate(v for v in (n, m)))
list(itertools.chain([n], (v for v in (m,))))
list(itertools.chain.from_iterable([[n], [m]]))
list(itertools.takewhile(lambda v: v < 10, (n, m)))
list(itertools.dropwhile((10.0).__gt__, (v for v in (n, m))))
list(itertools.starmap(pow, ((v, 2) for v in (n, m))))
list(itertools.starmap(max, [(n, m), (m, 3.0)]))
list(itertools.groupby(v for v in (n, n, m)))[0][0]
list(itertools.product([n], [m]))
list(itertools.combinations([n, m, 1.0], 2))
list(itertools.permutations((n, m)))
list(itertools.compress('ab', (v > 7 for v in (n, m))))
list(itertools.compress('ab', [n > 7, m > 7]))
next(itertools.count(n))
next(iter([n]))
next((v for v in (n, m) if v > 7), None)
list(itertools.zip_longest([n], [m, 2]))
collections.Counter([n, m, n])
collections.Counter(str(int(n)))
collections.defaultdict(int, {n: 1})[6.0]
collections.ChainMap({'a': n})['a']
collections.namedtuple('P', 'x y')(n, m)
collections.namedtuple('P', 'x y')(n, m)._asdict()
statistics.mean([n, m])
statistics.mean(v for v in (n, m))
fractions.Fraction(n)
decimal.Decimal(n)
datetime.timedelta(seconds=n)
datetime.timedelta(seconds=n).total_seconds()
complex(n, m)
complex(n, m).real + 1
int(n).bit_length()
n.is_integer()
n.hex()
n.as_integer_ratio()
divmod(n, 4)
divmod(n, 4)[1] * 2
round(n / 3, 2)
pow(int(n), 2, 7)
int(n).to_bytes(4, 'big')
int.from_bytes(int(n).to_bytes(4, 'big'), 'big')
float(str(n))
int(str(int(n)))
abs(-n)
max(n, m)
max(n, m) * 2
min([n, m]) * 2
sum([n, m]) * 2
sum([[n], [m]], [])
np.array([n, m])
np.float64(n) * 2
np.mean([n, m])
np.maximum(n, m)
np.arange(int(n))
np.array([v for v in (n, m)]).sum()
np.fromiter((v for v in (n, m)), float)
np.full((2,), n)
torch.tensor([n, m])
torch.tensor(list(v for v in (n, m)))
torch.tensor([[n], [m]])
torch.full((2,), n)
torch.full((int(n) % 5,), 1.0)
torch.zeros(int(n) % 5, 2)
torch.arange(n)
torch.linspace(0, n, 3)
t * n
t + (n if n > 7 else m)
t.add(t, alpha=n)
t.reshape([int(v) for v in (3,)]) * n
t.clamp(max=n)
t.new_tensor([n])
t.new_full((2,), m)
torch.tensor({'a': n}['a'])
torch.nn.functional.dropout(t, p=n*0)
functools.partial(pow, n)(2)
functools.partial(lambda a, b: a + b, n)(m)
functools.partial(max, n)(m)
operator.itemgetter(0)([n, m])
operator.itemgetter(0, 1)([n, m])
operator.attrgetter('real')(n)
operator.methodcaller('is_integer')(n)
operator.methodcaller('__add__', m)(n)
getattr(n, 'real')
getattr(n, '__add__')(m)
n.real
n.conjugate()
n.__add__(m)
n.__rsub__(m)
(-n).__abs__()
n.__class__(m)
float.__mul__(n, m)
type(n)(m) + 1
isinstance(n, float)
bool(n) and n
not n
n and m
n or m
n if n else m
(n > 7) + 1
(n > 7) * m
int(n > 7) * m
[n > 7].count(True)
sum([n > 7, m > 7])
sum(v > 7 for v in (n, m))
str(n > 7)
f"{n > 7}"
{True: 'y', False: 'n'}[n > 7]
('n', 'y')[n > 7]
re.match(r'\d+', str(n)).group()
re.sub('6', 'x', str(n))
re.findall(r'\d', f"{n}")
str(n).split('.')
str(n).split('.')[0] + 'x'
str(n).replace('6', 'x')
str(n).encode()
str(n).startswith('6')
len(str(n))
str(n)[0]
[c for c in str(n)]
list(str(n))
''.join(reversed(str(n)))
str(n).zfill(8)
str(n).partition('.')
'6' in str(n)
str(n) == '6.0'
str(n) in {'6.0'}
{str(n): 1}
{'6.0': 'hit'}.get(str(n))
{6.0: 'hit'}.get(n, 'miss')
{6.0: 'hit'}.pop(n, 'miss')
{}.setdefault(n, 2)
(lambda d: (d.update(a=n), d))({})
(lambda d: (d.update({n: 1}), d))({})
(lambda d: (d.update([(n, 1)]), d))({})
(lambda d: (d.__setitem__(n, 1), d))({})
(lambda d: d.setdefault('k', n) * 2)({})
(lambda l: (l.append(n), l.remove(6.0) if n == 6.0 else None, l))([])
(lambda l: (l.insert(int(n) % 2, 'x'), l))([1, 2, 3])
(lambda l: (l.extend(v for v in (n, m)), l, sum(l)))([])
(lambda l: (l.append(n), sum(l)))([])
(lambda l: (l.append(n), max(l) * 2))([])
(lambda l: (l.sort(), l))([m, n, 7.5])
(lambda l: (l.sort(key=lambda v: -v), l))([m, n, 7.5])
(lambda s: (s.add(n), len(s)))({6.0})
(lambda s: (s.add(n), s, sum(s)))({6.0})
(lambda s: (s.update([n, m]), s))({6.0})
(lambda s: (s.discard(n), s))({6.0, 14.0})
{6.0, 1.0} & {n, m}
{6.0, 1.0} - {n}
{6.0, 1.0}.union((v for v in (n, m)))
{6.0}.issubset({n, m})
[*(v for v in (n, m)), 1]
{**{'a': n}, 'b': m}
(lambda *a, **k: (a, k, sum(a)))(*(v for v in (n, m)), k=n)
print(*(v for v in (n, m)))
print(n, [m], {'k': n}, sep='|')
print("%s" % n, f"{m}")
slice(int(n), int(m))
slice(0, int(n)).indices(10)
copy.copy([n])
copy.deepcopy({'a': [n, m]})
copy.deepcopy(n) * 2
(lambda a, b=n: a + b)(m)
(lambda: n)()
(lambda: (yield n))().__next__()
(lambda g: (next(g), g.send(n)))((lambda: (yield (yield 1)))())
eval('n + m', {'n': n, 'm': m})
(lambda d: (exec('r = n * 2', d), d['r']))({'n': n})
type('C', (), {'v': n})().v
type('C', (), {'__call__': lambda self: self.v, 'v': n})()()
enum.Enum('E', {'A': n}).A.value
dataclasses.make_dataclass('D', ['v'])(n)
dataclasses.make_dataclass('D', ['v'])(n) == dataclasses.make_dataclass('D', ['v'])(6.0)
dataclasses.asdict(dataclasses.make_dataclass('D', ['v'])(n))
dataclasses.astuple(dataclasses.make_dataclass('D', ['v'])(n))
memoryview(array.array('d', [n]))[0]
random.Random(int(n)).random()
string.Template('$a').substitute(a=n)
textwrap.shorten(str(n) + ' x', 40)
io.StringIO(str(n)).read()
list(reversed([n, m]))
sorted([str(n), str(m)])
min(str(n), str(m))
max([n, m], default=0)
max({'a': n, 'b': m}, key={'a': n, 'b': m}.get)
max({'a': n, 'b': m}.values())
sum({'a': n, 'b': m}.values())
list({'a': n}.items())
list({'a': n}.values())[0] * 2
iter([n, m]).__next__()
(lambda it: (next(it), sum(it)))(iter((n, m)))
(lambda it: list(map(abs, it)))(v for v in (n, m))
(lambda it: [abs(v) for v in it])(v for v in (n, m))
sum(itertools.chain((v for v in (n,)), (v for v in (m,))))
sum(map(abs, (v for v in (n, m))))
sum(map(operator.mul, (v for v in (n, m)), itertools.count()))
set(map(int, (v for v in (n, m))))
max(map(int, (v for v in (n, m)))) + 1
[math.floor(v) for v in (n, m)]
math.floor(n / 4) * 2
math.sqrt(n) + math.log(m)
math.isclose(n, 6.0)
math.frexp(n)
math.modf(n)[0] + 1
np.sqrt(n) + 1
np.clip(n, 0, 7) * 2
float(np.float32(n))
torch.Size([int(n) % 4, 2])
torch.tensor(n).item() + 1
torch.tensor([n, m]).sum().item()
torch.Size((int(v) for v in (n, m)))
torch.stack([t * v for v in (n, m)])
torch.randn(2, generator=torch.Generator().manual_seed(int(n)))
(lambda c: (c.update([n]), c))(collections.Counter())
(lambda d: (d.append(n), d.rotate(int(n) % 2), d))(collections.deque([1, 2]))
(lambda d: (d.append(n), sum(d), max(d) + 1))(collections.deque([1, 2]))
(lambda d: (d.appendleft(n), d.count(6.0), d.index(n)))(collections.deque([1, 2]))
(lambda a: (a.append(n), a.tolist()))(array.array('d'))
(lambda b: (b.append(int(n) % 256), bytes(b)))(bytearray())
(lambda b: (b.extend(int(v) % 256 for v in (n, m)), b))(bytearray())
(lambda o: (setattr(o, 'v', n), o.v * 2, vars(o)))(types.SimpleNamespace())
(lambda o: (o.__dict__.update(v=n), sum(vars(o).values())))(types.SimpleNamespace())
(lambda o: o == types.SimpleNamespace(v=6.0))(types.SimpleNamespace(v=n))
(lambda a: a[0] + 1)(np.array([n]))
sum(zip((v for v in (n, m)), (v for v in (m, n))), ())
sum(v * w for v, w in zip((v for v in (n, m)), itertools.cycle([1, 2])))
[a + b for a, b in itertools.pairwise(v for v in (n, m, 1.0))]
list(itertools.filterfalse(math.isnan, (v for v in (n, m))))
list(map(int.__add__, map(int, (v for v in (n, m))), [1, 2]))
list(map({6.0: 'hit'}.get, (v for v in (n, m))))
list(map('{:.0f}'.format, (v for v in (n, m))))
list(map(operator.itemgetter(0), ((v,) for v in (n, m))))
list(map(lambda p: p[0] * 2, ((v,) for v in (n, m))))
list(map(math.floor, (v for v in (n, m))))
list(map(functools.partial(pow, 2), (v for v in (n, m))))
list(map(sum, ([v, 1] for v in (n, m))))
list(map(len, (str(v) for v in (n, m))))
list(map(torch.tensor, (v for v in (n, m))))
list(map(t.mul, (v for v in (n, m))))
[*map(round, (v for v in (n, m)))]
(lambda a, b: a + b)(*map(abs, (v for v in (n, m))))
next(map(abs, (v for v in (n, m))))
functools.reduce(math.hypot, (v for v in (n, m)))
functools.reduce(lambda a, b: a | {b}, (v for v in (n, m)), set())
sum(functools.reduce(operator.add, ([v] for v in (n, m))))
min(((v, i) for i, v in enumerate((m, n))))
min(enumerate(v for v in (n, m)), key=lambda p: p[1])
min(enumerate(v for v in (n, m)), key=operator.itemgetter(1))
max(zip((v for v in (n, m)), 'ab'))
max(zip((v for v in (n, m)), 'ab'))[0] * 2
all(map(operator.lt, (v for v in (n, m)), (7.0, 20.0)))
any(filter((7.0).__lt__, (v for v in (n, m))))
bytes(map(int, (v for v in (n, m))))
dict(map(lambda v: (v, 1), (n, m)))
dict(enumerate(v for v in (n, m)))
"".join(map(chr, (int(v) + 60 for v in (n, m))))
np.array(list(map(abs, (v for v in (n, m)))))
(lambda x, *y: x + sum(y))(*(v for v in (n, m)))
sum((lambda n=n: [n, m])())
[n, m][::-1][0] + 1
(lambda l: (l.__setitem__(0, n), l[0] + 1, l.pop() + 1))([1])
(lambda l: l.pop(0) * 2)([n, m])
(lambda d: d.popitem()[1] * 2)({'a': n})
(lambda d: d.popitem())({n: 1})
(lambda a, b: (a, b) if a < b else (b, a))(n, m)
(n, m) < (m, n)
max((n, 'a'), (m, 'b'))
n == n
n is n
n != m
[n] == [n]
n <= 6.0 <= m
-n + +m
~int(n)
int(n) << 1
int(n) & 4 | 1
int(n) % 4
int(n) // 4
n // 4
n % 4
n ** 2
2 ** n
'x' * int(n)
t[int(n) % 3]
t[:int(n) % 3]
t[[int(n) % 3, 0]]
t.narrow(0, int(n) % 3, 1)
t.index_select(0, torch.tensor([int(n) % 3]))
t.sum(dim=int(n) * 0)
t.repeat(int(n) % 3 + 1)
t.expand(int(n) % 3 + 1, 3)
t.split([int(n) % 3, 3 - int(n) % 3])
t.roll(int(n))
t ** n
t.pow(int(n))
torch.where(t > n / 4, n, m)
torch.full_like(t, n)
torch.tensor([n > 7, m > 7])
t * (n > 7)
t.masked_fill(t > 1, n)
t.to(torch.float64 if n > 7 else torch.float32)
list(map(abs, (gen(n, -m))))
[v for v in map(abs, (gen(n, -m)))]
tuple(map(str, (gen(n, m))))
list(map(float.__add__, (gen(n, m)), (gen(m, n))))
list(filter(None, (gen(n-n, m))))
list(filter(math.isfinite, (gen(n, m))))
functools.reduce(operator.add, (gen(n, m)))
sum(gen(n, m))
min(gen(n, m))
sorted((gen(n, m)), key=lambda v: -v)
any((v > 3) for v in gen(n, m))
all((v > 3) for v in gen(n, m))
any(map((3.0).__lt__, (gen(n, m))))
list(zip((gen(n, m)), (m, n)))
list(enumerate(gen(n, m)))
set(gen(n, m))
math.fsum(gen(n, m))
heapq.nsmallest(2, (gen(n, m, 3.0)))
(lambda d: (d.extend(gen(n, m)), d))(collections.deque())
array.array('d', (gen(n, m)))
array.array('d', (gen(n, m))).tolist()
bytes((int(v) % 256) for v in gen(n, m))
bytearray((int(v) % 256) for v in gen(n, m))
struct.pack('dd', *(gen(n, m)))
"{} {}".format(*(gen(n, m)))
", ".join(map(str, (gen(n, m))))
", ".join((str(v)) for v in gen(n, m))
list(itertools.accumulate(gen(n, m)))
list(itertools.chain([n], (gen(m))))
list(itertools.dropwhile((10.0).__gt__, (gen(n, m))))
list(itertools.groupby(gen(n, n, m)))[0][0]
list(itertools.compress('ab', ((v > 7) for v in gen(n, m))))
statistics.mean(gen(n, m))
np.fromiter((gen(n, m)), float)
torch.tensor(list(gen(n, m)))
sum((v > 7) for v in gen(n, m))
(lambda l: (l.extend(gen(n, m)), l, sum(l)))([])
{6.0, 1.0}.union((gen(n, m)))
[*(gen(n, m)), 1]
(lambda *a, **k: (a, k, sum(a)))(*(gen(n, m)), k=n)
print(*(gen(n, m)))
(lambda it: list(map(abs, it)))(gen(n, m))
(lambda it: [abs(v) for v in it])(gen(n, m))
sum(itertools.chain((gen(n)), (gen(m))))
sum(map(abs, (gen(n, m))))
sum(map(operator.mul, (gen(n, m)), itertools.count()))
set(map(int, (gen(n, m))))
max(map(int, (gen(n, m)))) + 1
torch.Size(((int(v)) for v in gen(n, m)))
(lambda b: (b.extend((int(v) % 256) for v in gen(n, m)), b))(bytearray())
sum(zip((gen(n, m)), (gen(m, n))), ())
sum(v * w for v, w in zip((gen(n, m)), itertools.cycle([1, 2])))
[a + b for a, b in itertools.pairwise(gen(n, m, 1.0))]
list(itertools.filterfalse(math.isnan, (gen(n, m))))
list(map(int.__add__, map(int, (gen(n, m))), [1, 2]))
list(map({6.0: 'hit'}.get, (gen(n, m))))
list(map('{:.0f}'.format, (gen(n, m))))
list(map(math.floor, (gen(n, m))))
list(map(functools.partial(pow, 2), (gen(n, m))))
list(map(sum, (([v, 1]) for v in gen(n, m))))
list(map(len, ((str(v)) for v in gen(n, m))))
list(map(torch.tensor, (gen(n, m))))
list(map(t.mul, (gen(n, m))))
[*map(round, (gen(n, m)))]
(lambda a, b: a + b)(*map(abs, (gen(n, m))))
next(map(abs, (gen(n, m))))
functools.reduce(math.hypot, (gen(n, m)))
functools.reduce(lambda a, b: a | {b}, (gen(n, m)), set())
sum(functools.reduce(operator.add, (([v]) for v in gen(n, m))))
min(enumerate(gen(n, m)), key=lambda p: p[1])
min(enumerate(gen(n, m)), key=operator.itemgetter(1))
max(zip((gen(n, m)), 'ab'))
max(zip((gen(n, m)), 'ab'))[0] * 2
all(map(operator.lt, (gen(n, m)), (7.0, 20.0)))
any(filter((7.0).__lt__, (gen(n, m))))
bytes(map(int, (gen(n, m))))
dict(enumerate(gen(n, m)))
"".join(map(chr, ((int(v) + 60) for v in gen(n, m))))
np.array(list(map(abs, (gen(n, m)))))
(lambda x, *y: x + sum(y))(*(gen(n, m)))
{6.0, 1.0} | {n}
{6.0, 1.0} ^ {n, m}
{n} == {6.0}
{6.0} <= {n, m}
{6.0, 1.0}.difference([n])
{6.0}.isdisjoint({n})
(lambda s: (s.__ior__({n}), s))({6.0})
{6.0: 'hit'} | {n: 'new'}
{6.0: 1} == {n: 1}
{n: 1}.keys() & {6.0}
{n: 1}.get(6.0)
{n: 1}[6.0] if n == 6.0 else 0
6.0 in {n: 1}
6.0 in {n}
6.0 in [n]
6.0 in (n,)
dict.fromkeys([n, m])
dict.fromkeys(gen(n, m), 0)
len({n: 1, 6.0: 2})
len({6.0: 2, **{n: 1}})
len(dict([(n, 1), (6.0, 2)]))
len(dict(((n, 1), (6.0, 2))))
(lambda d: (d.__setitem__(n, 1), d.get(6.0)))({})
frozenset({n}) & {6.0}
frozenset(gen(n)) & {6.0}
set(gen(n)) & {6.0}
set([n]) & {6.0}
collections.Counter({n: 2})[6.0]
collections.Counter(gen(n))[6.0]
collections.OrderedDict([(n, 1)]).get(6.0)
str(collections.Counter([n]))
str(collections.deque([n]))
str(frozenset([n]))
str({n: 1})
str({'k': [({n},)]})
str([collections.deque([n])])
"%s" % [n]
"%s" % {'a': [n]}
"%r" % ({n},)
f"{[n]}"
f"{ {n} }"
f"{ {'a': [[[[[n]]]]]} }"
"{}".format([[[[[n]]]]])
"{}".format(collections.deque([n]))
print([[[[[n]]]]])
print({n})
print(collections.deque([n]))
print(types.SimpleNamespace(v=n))
str(types.SimpleNamespace(v=[n]))
repr(Box(n))
str(Box(n))
f"{Box(n)}"
print(Box(n))
repr([Box(n)])
repr({'a': Box(n)})
json.dumps(Box(n).__dict__)
str(vars(Box(n)))
Box(n) == Box(6.0)
[Box(n)] == [Box(6.0)]
[Box(n)].index(Box(6.0)) if n == 6.0 else 0
sorted([Box(n), Box(m)])[0].v
min(Box(n), Box(m)).v * 2
max([Box(n), Box(m)]).v * 2
heapq.nlargest(1, [Box(n), Box(7.0)])[0].v
sum([Box(n)], Box(1)).v
hash(Box(n))
{Box(n): 1}.get(Box(6.0))
len({Box(n), Box(6.0)})
bool(Box(n))
int(Box(n))
float(Box(n))
float(Box(n)) + 1
math.floor(Box(n))
round(Box(n))
abs(Box(n))
len(Box(n))
list(Box(n))
[*Box(n)]
tuple(Box(n))
sum(Box(n))
max(Box(n))
dict(Box(n).items2())
operator.index(Box(n))
[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12][Box(n)]
range(Box(n))
list(range(Box(n)))
"ab" * Box(n)
bytes(Box(n))
hex(Box(n))
math.sqrt(Box(n))
complex(Box(n))
np.array(Box(n), dtype=float)
np.array([Box(n)], dtype=float)
torch.tensor([float(Box(n))])
torch.full((2,), float(Box(n)))
torch.zeros(Box(n))
torch.zeros([Box(n)])
t.sum() * float(Box(n))
t.reshape(3, -1).expand(3, Box(n))
isinstance(Box(n), Large)
Box(n) in [Box(6.0)]
Box(n)[0] + 1
6.0 in Box(n)
getattr(Box(n), 'dyn') + 1
(lambda b: (b.v, b.v * 2))(Box(n))
(lambda b: setattr(b, 'prop', m) or b.v * 2)(Box(n))
Box(n) + 1 == Box(7.0)
Box.make(n).v + 1
Slot(n).v * 2
str(Slot(n))
operator.attrgetter('v')(Box(n)) * 2
operator.attrgetter('v')(Slot(n)) * 2
operator.attrgetter('pair.0' if False else 'v', 'v')(Box(n))
copy.copy(Box(n)).v * 2
copy.deepcopy(Box(n)).v * 2
copy.deepcopy([n])[0] * 2
copy.copy({n}) & {6.0}
[n].copy()[0] * 2
{n}.copy() & {6.0}
{'a': n}.copy()['a'] * 2
collections.deque([n]).copy()[0] * 2
([n] + [m])[0] * 2
([n] * 2)[0] * 2
(n, m)[::-1][0] * 2
[n, m][0:1][0] * 2
list((n, m))[0] * 2
tuple([n, m])[0] * 2
[*[n, m]][0] * 2
{**{'a': n}}['a'] * 2
({'a': n} | {'b': m})['a'] * 2
np.array([n, m])[0] * 2
np.array([n, m]).tolist()[0] * 2
np.asarray(n) + 1
np.zeros(2) + n
np.zeros(int(n) % 3)
np.ones((2,)) * n
np.add(n, m)
np.array([1., 2., 3.])[int(n) % 3]
np.array([1., 2., 3.])[:int(n) % 3]
np.where(np.array([1., 20.]) > n, n, m)
np.linspace(0, n, 3)
np.full(2, fill_value=n)
np.full_like(np.zeros(2), n)
np.broadcast_to(n, (2,))
np.stack([n, m])
np.interp(n, [0, 10], [0, 1])
np.random.default_rng(int(n)).random()
np.random.RandomState(int(n)).rand()
np.float32(n).item() * 2
np.int64(int(n)) * 2
torch.Generator().manual_seed(int(n)).initial_seed()
torch.full([2], fill_value=n)
torch.ones(2).mul_(n)
torch.ones(2).fill_(n)
torch.eye(int(n) % 4)
torch.tensor((n, [m])[0])
torch.as_tensor([n, m])
torch.scalar_tensor(n)
torch.nn.Linear(3, int(n) % 4 + 1, bias=False).weight.shape
torch.nn.functional.pad(t, (int(n) % 3, 0))
torch.nn.functional.leaky_relu(t, n)
torch.nn.functional.one_hot(torch.tensor([0]), int(n) % 5 + 1)
torch.addcmul(t, t, t, value=n)
torch.logspace(0, n / 10, 3)
torch.chunk(t, int(n) % 3 + 1)
torch.topk(t, int(n) % 3 + 1)
torch.norm(t, p=n)
t.norm(p=int(n) % 3 + 1)
torch.cat([t] * (int(n) % 3 + 1))
t[int(n) % 3:].sum() * n
t.unflatten(0, (1, int(n) % 1 + 3))
t.quantile(n / 20)
torch.finfo(torch.float32).max * n
datetime.datetime.fromtimestamp(n).year
datetime.date(2000, 1, int(n) % 28 + 1)
fractions.Fraction(n) + 1
decimal.Decimal(n) * 2
statistics.median(gen(n, m))
struct.unpack('d', struct.pack('d', n))
array.array('d', [n])[0] * 2
memoryview(bytes([int(n) % 256]))[0]
int(n).__format__('04d')
format(n, '.3f')
format(int(n), 'b')
bin(int(n))
hex(int(n))
oct(int(n))
chr(int(n) + 60)
ord(chr(int(n) + 60)) + 1
ascii(str(n))
str(n) + str(m)
str(n) * 2
(str(n), 1) == ('6.0', 1)
"x" + str(n)
str(n) < str(m)
str(n).join(['a', 'b'])
', '.join([str(n), 'x'])
', '.join((str(n), 'x'))
', '.join({'a': str(n)}.values())
', '.join(sorted([str(n), 'x']))
'-'.join(gen(str(n), 'x'))
' '.join(f'{v}' for v in gen(n, m))
'{}'.format(str(n)).upper()
'%s' % str(n)
str(n).isdigit()
str(n).find('.')
str(n).index('.')
str(n).count('1')
str(n).split('.')[0] == '6'
str(n).rsplit('.', 1)[-1]
str(n).strip('0')
str(n).translate({46: 'x'})
str(n).encode().hex()
bytes(str(n), 'ascii')
bytearray(str(n), 'ascii')
str(bytes(str(n), 'ascii'), 'ascii')
re.compile(r'\d').findall(str(n))
re.split(r'\.', str(n))
re.search('6', str(n)) is not None
getattr(types.SimpleNamespace(a6=1, a11=2, a0=3, a3=4), 'a' + str(int(n)))
{'6.0': 1, '11.0': 2}.get(str(n))
{'6.0': 1}.get(f'{n}')
globals().get('x' + str(int(n)))
collections.namedtuple('P', ['a' + str(int(n))])(1)
type('C' + str(int(n)), (), {}).__name__
itertools.count(n).__next__() + 1
next(itertools.count(step=n))
list(itertools.islice(itertools.count(n, m), 3))
list(itertools.islice(itertools.cycle([n, m]), 3))
list(itertools.repeat(n, 2))
list(itertools.tee(gen(n, m))[1])
list(itertools.batched([n, m], 1)) if hasattr(itertools, 'batched') else 0
functools.partial(max, 1)(n)
functools.partial(operator.mul, n)(2)
functools.partial(str.format, '{}')(n)
functools.partial(sum, [n])()
functools.partial(sorted, [n, m], reverse=True)()
functools.partial(np.multiply, n)(2)
functools.partial(torch.mul, t)(n)
functools.partial(int, base=int(n) + 3)('12')
functools.partial(dict, a=n)()
list(map(functools.partial(operator.mul, n), [1, 2]))
sorted([3, 1], key=functools.partial(operator.mul, n - 7))
sorted([3, 1], key=lambda v: v * (n - 7))
functools.cmp_to_key(lambda a, b: a - b)(n) < functools.cmp_to_key(lambda a, b: a - b)(m)
sorted([n, 7.0], key=functools.cmp_to_key(lambda a, b: a - b))
functools.lru_cache(lambda v: v + 1)(n)
functools.singledispatch(lambda v: v + 1)(n)
contextlib.nullcontext(n).__enter__() * 2
contextlib.closing(types.SimpleNamespace(close=lambda: None, v=n)).thing.v * 2
(lambda b: weakref.ref(b)().v * 2)(Box(n))
(lambda b: weakref.proxy(b).v * 2)(Box(n))
types.MappingProxyType({'a': n})['a'] * 2
types.MethodType(lambda a, b: a + b, n)(m)
types.MethodType(max, n)(m)
n.__lt__(7)
n.__eq__(6.0)
n.__bool__()
n.__str__()
n.__repr__() + 'x'
n.__format__('.2f')
n.__hash__()
n.__divmod__(4)
n.__round__()
n.__trunc__() + 1
n.__float__() + 1
n.__int__() + 1
float.fromhex(n.hex()) + 1
int.__add__(int(n), 1)
int(n).__index__() + 1
int(n).bit_count()
int(n).conjugate() + 1
int(n).numerator + 1
n.imag
complex(n).real * 2
complex(n) * 2
complex(n).conjugate()
abs(complex(n, m))
operator.add(n, m)
operator.contains([6.0], n)
operator.countOf([6.0], n)
operator.indexOf([6.0, 11.0, 3.0, 0.0], n)
operator.getitem([1] * 20, int(n))
operator.length_hint(gen(n))
operator.concat([n], [m])
operator.truth(n)
operator.is_(n, n)
operator.not_(n)
operator.eq([n], [6.0])
all([n > 7])
all((n, m))
any([n - 6.0])
any({n - 6.0: 1})
any(gen(n - 6.0, 0))
all(gen(n, m))
filter(None, gen(n)).__next__() * 2
list(filter(None, [n, m]))
list(filter(None, gen(n - 6.0, m)))
list(filter((6.0).__eq__, gen(n, m)))
list(zip([n], gen(m)))[0][0] * 2
dict(zip(gen(n, m), 'ab'))
dict(zip(gen(n, m), 'ab')).get(6.0)
{k: v for k, v in zip(gen(n, m), 'ab')}.get(6.0)
len(set(zip(gen(n, m), gen(6.0, 14.0))) & {(6.0, 6.0)})
list(map(max, gen(n), gen(m)))
list(map(lambda v: max(v, 7), gen(n, m)))
list(enumerate(gen(n, m), int(n)))
list(enumerate('ab', int(n)))
list(reversed((n, m)))[0] * 2
list(dict.fromkeys([n]))[0] * 2
max(gen(n, m), default=0) * 2
max(gen(n, m), key=abs) * 2
max(gen(n, m), key=lambda v: 20 - v) * 2
min(n, m, key=lambda v: abs(v - 10)) * 2
sum(gen(n, m), n)
sum(gen([n], [m]), [])
round(sum(gen(n, m)) / 3, 1)
pow(2, int(n), 5)
divmod(int(n), 4)[0] + 1
isinstance(n, (int, float)) and n
id(n) == id(n)
callable(n)
vars(types.SimpleNamespace(a=n))['a'] * 2
locals()['n'] * 2
[v for k, v in locals().items() if k == 'n'][0] * 2
sum(v for k, v in locals().items() if k == 'n')
str(locals()['n'])
(lambda **k: sum(k.values()))(a=n, b=m)
(lambda **k: str(k))(a=n, b=m)
(lambda *a: str(a))(n, m)
(lambda *a: len(set(a)))(n, 6.0)
(lambda a, *, k: a * k)(n, k=m)
[[v] for v in gen(n, m)][0][0] * 2
{v: v for v in gen(n, m)}
{v for v in gen(n, m)} & {6.0}
[v for v in gen(n, m) if v > 7]
[v for v in sorted(gen(n, m))]
[a for a, in [(n,), (m,)]]
(lambda x: (y := x * 2))(n)
(lambda l: [l.append(v) for v in gen(n, m)] and sum(l))([])
(lambda s: [s.add(v) for v in gen(n, m)] and len(s))({6.0})
(lambda q: [heapq.heappush(q, v) for v in gen(m, n)] and q[0] * 2)([])
(lambda q: heapq.heappushpop(q, n))([7.0])
(lambda q: heapq.heapreplace(q, n))([7.0])
(lambda l: (bisect.insort(l, n), l.index(n)))([1.0, 8.0])
bisect.bisect_left([1, 8], n, key=lambda v: v)
(lambda l: (l.reverse(), l[0] * 2))([n, m])
(lambda l: (l.sort(reverse=True), l[0] * 2))([n, 7.0])
(lambda l: (l.clear(), len(l)))([n])
(lambda l: (l.__delitem__(int(n) % 2), l))([1, 2])
(lambda l: (l.pop(int(n) % 2), l))([1, 2])
(lambda l: (l.__setitem__(slice(0, int(n) % 2), [9, 9]), l))([1, 2])
(lambda l: l.__contains__(n))([6.0])
(lambda l: l.__iadd__(gen(n, m)))([])
(lambda d: (d.pop(n, None), d))({6.0: 1, 11.0: 2})
(lambda d: (d.__delitem__(n) if n in d else 0, d))({6.0: 1, 11.0: 2})
(lambda d: d.setdefault(n, 'new'))({6.0: 'old'})
(lambda d: (d.move_to_end(n) if n in d else 0, list(d)))(collections.OrderedDict({6.0: 1, 11.0: 2}))
(lambda d: (d[n].append(1), d.get(6.0)))(collections.defaultdict(list))
(lambda d: (d.subtract([n]), d[6.0]))(collections.Counter())
(lambda c: c.most_common(1))(collections.Counter([n, n, m]))
(lambda c: c.total())(collections.Counter({'a': n}))
(lambda c: (c.update(a=n), c['a'] * 2))(collections.Counter())
collections.Counter(a=n) + collections.Counter(a=1)
collections.ChainMap({}, {n: 1}).get(6.0)
collections.UserList([n])[0] * 2
collections.UserDict({'a': n})['a'] * 2
collections.UserString(str(n)) + 'x'
"""
LINES = [line for line in EXPRESSIONS.split("\n") if line]


test_a_number_is_followed_wherever_it_goes = check_all(LINES)
