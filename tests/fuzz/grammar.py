"""Random programs as text: a world, a function over it, steps that call it and change the world.

Owns: the templates and how they are filled. Does not own: what is done with a program
(`worlds.py`). In a template `$T` is an expression of a type, `$+T` a new local variable of it,
`$=T` a new or an old one, `$vT` something assignable, `$fnT` a new function; a line that ends in
`:` is followed by a block. Types: T tensor, I int, F float, B bool, S str, A anything, LT/LI lists,
DT/DI dicts, O Thing.

Bare names of the world that the function or the steps assign are declared global afterwards.
Programs that raise are mended: the statement that raised is taken out, most times.
"""

from __future__ import annotations

import ast
import dataclasses
import dis
import inspect
import random
import re
import types

from tests.fuzz import worlds

EXPRESSIONS = {
    "T": """
        $T + $T | $T * $T | $T - $F | $T * $I | $F * $T | $T / 2 | -$T | $T ** 2
        torch.relu($T) | torch.sigmoid($T) | $T.tanh() | $T.exp() | F.gelu($T)
        $T.sum() | $T.mean() | $T.sum(-1, keepdim=True) | $T.sum().view(1)
        $T.reshape(-1) | $T.reshape(-1)[:1] | $T[..., :1] | $T[..., 0] | $T.T | $T.unsqueeze(0)
        $T.view_as($T) | $T.flatten()[$I % 2] | $T.expand(2, 3) | $T.transpose(-1, 0)
        torch.cat([$T.reshape(-1), $T.reshape(-1)]) | torch.stack([$T, $T]).sum(0)
        torch.where($T > 0, $T, $T) | $T.clone() | $T.detach() | $T.clamp(min=$F)
        torch.full((3,), $F) | torch.zeros($I % 3 + 1) | torch.arange($I % 4 + 1).float()
        torch.tensor($LI).float() | torch.tensor([$F, $F, 1.0]) | torch.ones_like($T) | $t
        $T.to(torch.float64) | $T.float() | ($T > $F).float() | $T.softmax(-1) | $T.max()
        $T if $B else $T | sum($LT) | sum($LT, start=$T) | $LT[0] | $LT[-1] | $DT["a"]
        max($T, $T, key=lambda q: q.numel()) | $T.masked_fill($T > 0, $F) | $T.contiguous()
        functools.reduce(operator.add, $LT) | $T.split(1)[0] | $T.unbind(0)[-1] | next(iter($LT))
        $T.sort().values | $T.cumsum(-1) | torch.maximum($T, $T) | $T.add($T, alpha=$I)
        (lambda q: q * $F)($T) | F.linear($T.reshape(-1)[:1], torch.ones(2, 1)) | $T.type_as($T)
        $T * len($LT) | $T * $T.shape[-1] | $T.new_zeros(3) | $T.square().sum().sqrt()
        torch.from_numpy($N).float() | torch.tensor($N) | torch.as_tensor($N) * $F
        torch.complex($T.float(), $T.float()).abs() | $T.to(torch.complex64) | torch.real($T)
        $T.to(torch.complex64).conj() | $T.to(torch.bfloat16) | $T.half().float() | $T.long()
        torch.func.grad(lambda q: (q * q).sum())($T) | torch.vmap(torch.sin)($T) | $T.imag
        torch.utils.checkpoint.checkpoint(torch.tanh, $T, use_reentrant=False) | $T.mT
        min($LT, key=lambda q: q.sum().item()) | $T.index_select(-1, torch.tensor([0]))
        F.conv1d($T.reshape(1, 1, -1), torch.ones(1, 1, 1)) | $T.type(torch.float32) | $T.mH
        F.mse_loss($T, $T) | torch.einsum("...i,...i->...", $T, $T) | $T.nan_to_num() | $T.data
        torch.arange($I % 5).float() | torch.zeros(len($S)) | $T.repeat(2) | $T[None] | $T.grad
        functools.reduce(lambda q, r: q * r, $LT) | $T.roll(1) | torch.lerp($T, $T, $F)
    """,
    "I": """
        $i | $i | $I + $I | $I - $i | $I * $i | $I % 3 | $I // 2 | len($LT) | len($LI)
        $T.dim() | $T.numel() | len($T.shape) | $T.shape[-1] | sum($T.shape) | int($F) | int($B)
        $I if $B else $I | max($I, $I) | min($LI) | sum($LI) | len($S) | $LI[0] | $LI[-1]
        abs($I) | $DI.get("a", $i) | $DI.get($S, 1) | len($DI) | max($LI, default=0) | $LI.count($i)
        sorted($LI)[0] | sum(q for q in $LI) | int($T.sum() > 0) | $T.argmax().item() | hash($i)
        next((q for q in $LI if q > $i), $I) | ($T > 0).sum().item() | divmod($I, 3)[1] | ord($S[0])
        int($T.sum().item() * 2) | $N.size | $N.ndim | len(bytes([$I % 9])) | "abc".find($S)
        sum(map(abs, (q + 1 for q in $LI))) | max($LI, key=lambda q: -q) | operator.add($I, $I)
        pow(2, $I % 4) | int(str($I)) | bisect.bisect([1, 3], $I) | hash(($I, $i)) % 7 | ~$I
        functools.reduce(lambda q, r: q + r, $LI, $i) | len(list(range($I % 5))) | int("7")
        (lambda *q, **k: len(q) + len(k))(*$LI, **$DI) | $I << 1 | -$I | len(frozenset($LI))
        int.from_bytes(bytes([$I % 9]), "big") | sum(1 for _ in $IT) | next($IT, $i) or 0
        sum(itertools.islice($LI, 2)) | heapq.nsmallest(1, $LI)[0] | struct.pack("b", $I)[0]
        len($A) | sum(itertools.accumulate($LI)) | $LI.index($i) | math.gcd($I, 6) | ($I).real
    """,
    "F": """
        $f | $f | $F + $I | $F * $F | $F - $f | float($I) | $I / 2 | abs($F) | max($F, $f)
        $F if $B else $F | round($F, 1) | math.sin($F) | $T.sum().item() | $T.flatten()[0].item()
        math.floor($F) | float($T.mean()) | min($F, $T.max().item()) | $T.tolist()[0]
        float($N.sum()) | $N.flat[0] | $N.mean() | math.fsum(q / 2 for q in $LI)
        math.sqrt(abs($F))
        math.hypot($F, $I) | float("%.1f" % $F) | sum([$F, $F]) | statistics.mean([$F, $f])
        $F // 1 | $F % 2 | math.copysign(1, $F) | struct.unpack("d", struct.pack("d", $F))[0]
        max([$F, $f], key=abs) | float(str($F)) | np.float64($F) | round($F)
    """,
    "B": """
        True | False | $I > $i | $I == $I | $F < $f | not $B | $B and $B | $B or $B | $S == $s
        $S in $DI | $i in $LI | $T.dim() > 1 | $T.requires_grad | $T.shape == $T.shape
        $T.sum() > $f | ($T > 0).any() | $T is $T | $A is None | isinstance($A, int) | bool($LI)
        $LI == $LI | $i < $I < 5 | torch.is_grad_enabled() | $T.is_leaf
        isinstance($A, torch.Tensor)
        all(q > 0 for q in $LI) | any($LI) | $T.dtype == torch.float32 | hasattr($A, "shape")
        torch.equal($T, $T) | $A is $A | callable($A) | $T.sum().item() > $f | type($A) is list
        torch.is_inference_mode_enabled() | $T.is_complex() | $T.is_contiguous() | ($N > 0).any()
        any(map(bool, $LI)) | isinstance($A, (int, float)) | $T.grad is None | $S.startswith($s)
        torch.allclose($T, $T) | $F != $F | torch.is_autocast_enabled("cpu") | $A == $A
        torch.get_default_dtype() == torch.float32 | issubclass(type($A), dict) | $T.data_ptr() == 0
    """,
    "S": """
        $s | $s | $S + $s | str($I) | f'''{$I}-{$S}''' | $S.upper() | $s if $B else $S | repr($I)
        f'''{$F:.2f}''' | "".join(sorted($S)) | type($A).__name__ | "%d" % $I | str($T.dtype)
        $S[:1]
        f'''{$T.sum().item():.1f}''' | next(iter($DI), "z") | ",".join($DI)
        f'''{$T}''' | f'''{$T.sum():.2f}''' | str($N) | "{:>4}".format($I) | $S.zfill(3)
        "".join(map(str, $LI)) | "a" * ($I % 4) | repr($F) | chr(97 + $I % 5) | "-".join($S)
        str($LI) | f'''{$I:03d}{$F!r}{$S:>3}''' | str($T.shape) | $S.replace("a", $s) | hex($I)
        "%s %r" % ($I, $S) | type($T).__name__ | $S.format($I) | $T.dtype.__repr__()
    """,
    "A": """
        $T | $T | $I | $F | $B | $S | None | ($T, $I) | [$T, $A] | {"a": $T, "k": $A} | $LT | $DT
        $LI | $DI | (lambda q=2: q) | slice($i, None) | $T.shape | $A or $A | {$i, $i} | $T.tolist()
        Pair($T, $I) | $O | [$A, $A] | Record($T) | collections.OrderedDict(a=$T, b=$A) | $T.dtype
        types.SimpleNamespace(v=$A) | range($i) | functools.partial(max, $I)
        ($T.numpy() if not $T.requires_grad else 0) | $N | $N | np.float32($F) | next($IT, None)
        (q * 2 for q in $LT) | iter($LT) | map(torch.relu, $LT) | zip($LT, $LI) | enumerate($LT)
        (lambda q=$T: q * 2) | reversed($LI) | iter($LI) | collections.deque($LI, maxlen=2)
        collections.namedtuple("Local", "x y")($T, $I) | frozenset($LI) | $I + 1j | bytearray(b"ab")
        functools.partial(torch.add, $T, alpha=$I) | functools.partial(lambda q, r: q, $A)
        collections.defaultdict(list, a=$LT) | collections.Counter($S) | itertools.count($I)
        [*$IT] | sorted($LI, key=lambda q: -q) | {"x": {"y": [$A]}} | $T.stride() | $T.grad_fn
        array.array("i", $LI) | dataclasses.replace(Record($T), n=$I) | $O.scale | ($A, $A)
        tuple(q + 1 for q in $LI) | {q: q * 2 for q in $LI} | ($T > 0).tolist() | $T.size()
    """,
    "N": """
        np.array($LI, dtype=np.float32) | np.ones(3, dtype=np.float32) * $F | $T.detach().numpy()
        $N * 2 | $N + $F | np.sin($N) | $N[:1] | $N.copy() | $N.reshape(-1) | np.arange(3.0)
        np.maximum($N, $F) | $N.astype(np.float64) | np.asarray($LI) | np.where($N > 0, $N, 0.0)
        np.concatenate([$N.reshape(-1), $N.reshape(-1)]) | $T.detach().clone().numpy()
    """,
    "IT": """
        iter($LI) | (q + 1 for q in $LI) | iter([$I, $I]) | map(abs, $LI) | iter(range($I % 4))
    """,
    "LT": """
        [$T, $T] | [$T] | [q * 2 for q in $LT] | $LT + [$T] | $LT[::-1] | list($DT.values())
        list($LT)
        [q for q in $LT if q.dim()] | list($T.reshape(-1).unbind(0)) | [$T for _ in range(2)]
        list(map(torch.relu, $LT))
        sorted($LT, key=lambda q: q.numel()) | [$T, *$LT] | list($T.chunk(2))
    """,
    "LI": """
        [$I, $I] | list(range($I % 4)) | [q + 1 for q in $LI] | $LI + [$I] | sorted($LI)
        list($T.shape)
        $LI[:2] | $LI * 2 | [*$LI, $i] | list($DI.values()) | list(map(abs, $LI))
        [len(q) for q in $DI] | $LI[::-1]
    """,
    "DT": """
        {"a": $T, "b": $T} | dict(a=$T) | {**$DT, "c": $T} | {k: q + 1 for k, q in $DT.items()}
        dict($DT)
    """,
    "DI": """
        {"a": $I, "b": $i} | {**$DI, $S: $I} | dict($DI) | {k: q for k, q in $DI.items() if q}
        collections.Counter($S) | dict(zip($S, $LI))
    """,
    "O": """
        Thing($F) | Thing($T) | Thing($I, name=$S)
    """,
}

STATEMENTS = """
$=T = $T
$=T = $T
$=T = $T
$=T = $T
$=I = $I
$=F = $F
$=B = $B
$=S = $S
$=A = $A
$=LT = $LT
$=LI = $LI
$=DT = $DT
$=DI = $DI
$=O = $O
$=T, $=I = $T, $I
$=T, *$+LT = $T, *$LT
($+I := $I)
$vT += $F
$vT.add_($T)
$vT.mul_($F)
$vT[..., 0] = $F
$vT.copy_($T)
$vT[$T > 0] = $F
$vT.reshape(-1)[0].add_(1)
$vT.data = $T.detach()
$vT.data.mul_($F)
torch.add($T, $T, out=$vT)
$vT.relu_()
$vLI.append($I)
$vLI.pop()
$vLI.extend($LI)
$vLI[0] = $I
$vLI += [$I]
$vLT.append($T)
$vLT[0] = $T
$vLT.insert(0, $T)
del $vLT[0]
$vLT[:] = $LT
$vDT["a"] = $T
$vDT[$S] = $T
$vDT.setdefault($S, $T).add_(1)
$vDT.update(z=$T)
$vDI[$S] = $I
$vDI.pop("a", None)
$vDI["n"] = $vDI.get("n", 0) + 1
$vDI.clear()
$vO.v = $A
$vO.n += 1
$vO.scale($T)
$vO.new = $A
setattr($vO, $S, $A)
vars($vO)["m"] = $I
del $vO.n
print($S, $I)
print($T)
print(f'''{$I} {$S!r}''', end=';')
warnings.warn($S)
warnings.warn($S, Notice)
warnings.warn(f'''{$I} {$S}''', Notice, stacklevel=1)
$=N = $N
$=N = $N
$vN[0] = $F
$vN += $F
$vN.fill($F)
np.add($N, 1, out=$vN)
$=T = torch.from_numpy($vN)
$=IT = $IT
next($vIT, None)
for $+I in $IT:
del $vLI[0]
del $vLI[:1]
del $vDI["a"]
del $vDT["a"]
delattr($vO, $S)
$vLI.sort(key=lambda q: -q)
$vLT.sort(key=lambda q: q.sum().item())
$vLI.sort()
$vLI.remove($i)
$vLI[:1] = $LI
$vLI *= 2
$vDI |= $DI
$vDI = {**$vDI, "q": $I}
$vDT.pop("a", None)
$vDT.update($DT)
$vT.requires_grad_()
$vT.retain_grad()
$vT.register_hook(lambda g: g * 2)
$vT.grad = None
$vT.zero_()
$vT.fill_($I)
$vT.clamp_(min=$F)
$vT.sub_($T, alpha=2)
$vT.t_()
$vT.unsqueeze_(0)
$vT.set_($T.detach().clone())
$vT.normal_()
$vT.index_fill_(0, torch.tensor([0]), $F)
$vT[0] += $F
$vT *= $T
$vT = $vT + $T
$vT /= 2
$vT.sum().backward(retain_graph=True)
(($vT * $T).sum() + $F).backward()
with torch.inference_mode():
with torch.autocast("cpu", dtype=torch.bfloat16):
with torch.set_grad_enabled($B):
with contextlib.suppress(Exception):
with contextlib.ExitStack() as $+A:
with warnings.catch_warnings():
torch.set_grad_enabled($B)
torch.set_default_dtype($T.dtype)
torch.manual_seed($i)
class $fnC:#class
match $A:#match2
try:#return
if ($+I := $I) > $i:#else
while True:#break
for $+T in $T:
for $+I in map(abs, $LI):
$=A = {q: $A for q in $S}
$=A = [$A, $vT]
$=S = f'''{$T.tolist()}'''
$vO.__class__ = type($O)
$vO.v = lambda: $A
$vO.it = $IT
$vLI.append($vLI.pop() + $I)
$vT, $vT = $vT, $vT
$=T = $T.requires_grad_()
$=T = torch.nn.Parameter($T.detach())
$vO.hook = $vT.register_hook(print)
assert $B
raise ValueError($S)
$=I = in_thread(math.floor, $F)
if $B:#else
if $B:
if $T.sum() > $f:#else
for $+I in range($i):
for $+T in $LT:
for $+I, $+T in enumerate($LT):
for $+S, $+T in $DT.items():
for $+S in sorted($DI):
for $+T, $+I in zip($LT, $LI):
while $vI < $i:#$vI += 1
with torch.no_grad():
with torch.enable_grad():
try:#except
try:#finally
try:#raise
def $fnT(q):#inner
def $fnT(q, r=$F):#inner
def $fnI():#nonlocal
def $fnG(n):#generator
match $A:#match
if $B: return $A
$=T = torch.rand(3) + $T
$=T = F.dropout($T, 0.5)
$=F = random.random()
$=I = random.randint(0, 3)
$=F = float(np.random.rand())
$=T = torch.randn_like($T)
$=T = torch.from_numpy($T.detach().numpy() * 2)
$=T = $T[$T > 0]
$=T = $T.nonzero()
$=F, *$+LI = $T.reshape(-1).tolist()
assert $B, $S
del $vT
$=T = torch.autograd.grad($T.requires_grad_().sum(), [$vT], allow_unused=True)[0]
$vT.sum().backward()
$=T = $vT
$=T = $vT.view(-1)
$=LT = $vLT
$=A = [$A for _ in range(2)]
$=A = [$vT] * 2
$vT.tag = $A
exec("pass")
$+A = locals().keys() and $I
"""


@dataclasses.dataclass
class Piece:
    """Something in the world.

    Attributes:
        setup: its source.
        uses: expressions of it, by type.
        acts: statements that read or change it from inside the function.
        changes: statements of the steps that change it between calls.
    """

    setup: str
    uses: dict[str, str] = dataclasses.field(default_factory=dict)
    acts: str = ""
    changes: str = ""


# What a program begins with, as far as the rest of it names it.
BASE = {
    "collections": "import collections",
    "functools": "import functools",
    "math": "import math",
    "operator": "import operator",
    "random": "import random",
    "types": "import types",
    "warnings": "import warnings",
    "dataclasses": "import dataclasses",
    "itertools": "import itertools",
    "contextlib": "import contextlib",
    "array": "import array",
    "bisect": "import bisect",
    "heapq": "import heapq",
    "statistics": "import statistics",
    "struct": "import struct",
    "weakref": "import weakref",
    "asyncio": "import asyncio",
    "checkpoint": "import torch.utils.checkpoint",
    "np": "import numpy as np",
    "torch": "import torch",
    "F": "import torch.nn.functional as F",
    "nn": "from torch import nn",
    "Pair": 'Pair = collections.namedtuple("Pair", "t n")',
    "Record": """@dataclasses.dataclass
class Record:
    t: object
    n: int = 1""",
    "Thing": """class Thing:
    n = 1
    limit = 4
    def __init__(self, v, name="thing"):
        self.v = v
        self.name = name
    @property
    def twice(self):
        return self.v * 2
    def scale(self, t):
        self.n += 1
        return t * self.v""",
}

PIECES = {
    "gi": Piece(
        "gi = $i",
        {"I": "gi", "B": "gi > 1"},
        "gi = $I | gi += 1 | gi = gi * 2 % 7",
        "gi = $i | gi = $f | gi = True | gi += 1 | gi = int(gi)",
    ),
    "gf": Piece(
        "gf = $f",
        {"F": "gf"},
        "gf = $F | gf *= 0.5",
        "gf = $f | gf = $i | gf = -0.0 | gf = float('nan')",
    ),
    "gs": Piece("gs = $s", {"S": "gs"}, "gs = $S | gs += 'x'", "gs = $s | gs = ''"),
    "gb": Piece("gb = $B", {"B": "gb"}, "gb = not gb", "gb = not gb | gb = 1 | gb = None"),
    "gt": Piece(
        "gt = $t",
        {"T": "gt | gt * 2"},
        "gt.add_($F) | gt = gt + 1 | gt = $T | gt[..., 0] = $F | gt.requires_grad_() | "
        "gt.grad = None",
        "gt.add_(1) | gt = $t | gt = gt.double() | gt.requires_grad_() | gt.data = $t | "
        "gt = gt.detach() | gt = gt.clone() | gt.zero_() | gt = gl_view",
    ),
    "gp": Piece(
        "gp = nn.Parameter($t.float())",
        {"T": "gp"},
        "gp.data.add_($F) | gp.grad = None | gp.data = $T.detach()",
        "gp.data.mul_(2) | gp.grad = None | gp.requires_grad_(False) | "
        "gp.requires_grad_(True) | gp = nn.Parameter($t) | gp.data = $t",
    ),
    "gli": Piece(
        "gli = [$i, $i]",
        {"LI": "gli", "I": "gli[0] | gli[-1] | gli[-2] | gli[1] | len(gli)"},
        "gli.append($I) | gli[0] = $I | gli.pop() | gli.sort() | gli.reverse() | "
        "gli[:] = $LI | gli = gli + [$I] | gli += [$I] | gli.insert(0, $I) | gli.remove($I) | "
        "gli.clear()",
        "gli.append($i) | gli[0] = $i | gli = list(gli) | gli = [$i, $i] | gli.clear() | "
        "gli[0] = $f | gli = tuple(gli) | gli[:] = gli[:] | gli.reverse()",
    ),
    "glt": Piece(
        "glt = [$t, $t]",
        {"LT": "glt", "T": "glt[0] | glt[-1] | glt[-2] | glt[1]"},
        "glt.append($T) | glt.append(glt[-1] + $T) | glt[-1] = $T | glt.pop(0) | glt.extend($LT) |"
        "glt.append($T) | glt[0] = $T | glt.pop() | glt[0].add_(1) | glt = glt[1:] | "
        "glt[0], glt[-1] = glt[-1], glt[0] | glt.clear()",
        "glt.append($t) | glt[0] = $t | glt[0] = glt[-1] | glt = [$t] | glt[0].mul_(2) | "
        "glt.reverse() | glt[0] = glt[0].double()",
    ),
    "gdi": Piece(
        'gdi = {"a": $i, "b": $i}',
        {"DI": "gdi", "I": 'gdi["a"] | gdi.get("b", 0) | gdi.get("zz", 1)', "B": '"c" in gdi'},
        'gdi["a"] = $I | gdi["c"] = $I | gdi["a"] += 1 | gdi.pop("b", None) | '
        'gdi.setdefault($S, $I) | gdi.update(a=$I) | del gdi["b"] | gdi = dict(gdi) | '
        "gdi |= $DI | gdi.popitem() | gdi.clear()",
        'gdi["a"] = $i | gdi["c"] = $i | gdi.pop("b", None) | gdi = dict(gdi) | '
        'gdi = {"b": $i, "a": $i} | gdi["a"] = gdi.pop("a") | gdi["zz"] = $i',
    ),
    "gdt": Piece(
        'gdt = {"a": $t, "b": $t}',
        {"DT": "gdt", "T": 'gdt["a"] | gdt.get("b", $T)'},
        'gdt["a"] = $T | gdt[$S] = $T | gdt["a"].add_(1) | gdt.pop("b", None) | '
        'gdt["b"] = gdt["a"] | gdt = {} | gdt.setdefault($S, $T)',
        'gdt["a"] = $t | gdt["b"] = gdt.get("a") | gdt["a"].add_(1) | gdt.pop("b", None) | '
        'gdt["c"] = $t',
    ),
    "gset": Piece(
        "gset = {$i, $i}",
        {"B": "$I in gset", "I": "len(gset) | sum(gset)", "LI": "sorted(gset)"},
        "gset.add($I) | gset.discard($I) | gset |= {$I} | gset.update($LI)",
        "gset.add($i) | gset.clear() | gset = set(gset) | gset.discard($i)",
    ),
    "gq": Piece(
        "gq = collections.deque([$i, $i], maxlen=3)",
        {"I": "gq[0] | len(gq)", "LI": "list(gq)"},
        "gq.append($I) | gq.appendleft($I) | gq.popleft() | gq.rotate(1) | gq[0] = $I",
        "gq.append($i) | gq.clear() | gq.rotate() | gq.append($f)",
    ),
    "gqt": Piece(
        "gqt = collections.deque([$t, $t], maxlen=3)",
        {"T": "gqt[0] | gqt[-1]", "LT": "list(gqt)", "I": "len(gqt)"},
        "gqt.append($T) | gqt.append($I) | gqt.popleft() | gqt.rotate(1) | gqt[0] = $T | "
        "gqt.appendleft($T) | gqt.extend($LT) | gqt.append(gqt[0] + $T) | gqt.pop()",
        "gqt.append($t) | gqt.clear() | gqt.rotate() | gqt.append($f) | gqt[0].add_(1) | "
        "gqt = collections.deque(gqt, maxlen=2) | gqt.append(gqt[-1])",
    ),
    "gc": Piece(
        "gc = collections.Counter('ab')",
        {"I": 'gc["a"] | gc[1] | sum(gc.values())', "DI": "gc"},
        'gc["a"] += 1 | gc[$S] += $I | gc[$I] += 1 | gc[1] += $I | gc.update($S)',
        'gc["a"] += 1 | gc[1] += 1 | gc.clear() | gc["q"] = 1 | gc[0] = $f',
    ),
    "gdd": Piece(
        "gdd = collections.defaultdict(list)",
        {"I": "len(gdd) | len(gdd['a'])"},
        "gdd[$S].append($I) | gdd[$S].append($T) | gdd.setdefault($S, []).append($I) | "
        "gdd.setdefault($S) | gdd.setdefault($S, [$I])",
        "gdd['a'].append(1) | gdd.clear() | gdd.default_factory = list",
    ),
    "gpair": Piece(
        "gpair = Pair($t, $i)",
        {"T": "gpair.t", "I": "gpair.n"},
        "gpair = Pair($T, $I) | gpair.t.add_(1)",
        "gpair = Pair(gpair.t, $i) | gpair = gpair._replace(t=$t) | gpair.t.mul_(2)",
    ),
    "grec": Piece(
        "grec = Record($t, $i)",
        {"T": "grec.t", "I": "grec.n", "B": "grec == Record($T, $I)"},
        "grec.n += 1 | grec.t = $T | grec = dataclasses.replace(grec, n=$I)",
        "grec.n = $i | grec.t = $t | Record.n = $i | grec.t.add_(1) | grec = Record($t)",
    ),
    "thing": Piece(
        "thing = Thing($f)",
        {
            "T": "thing.scale($T) | $T * thing.twice",
            "I": "thing.n | Thing.limit | thing.limit",
            "F": "thing.twice",
            "O": "thing",
            "S": "thing.name",
            "A": "thing.v | thing.scale | getattr(thing, $S, None)",
        },
        "thing.v = $F | thing.n += 1 | Thing.limit += 1 | thing.extra = $A | thing.v = $T | "
        "Thing.count = getattr(Thing, 'count', 0) + 1 | thing.name = $S | del thing.name | "
        "thing.self = thing | thing.__dict__.update(m=$I)",
        """thing.v = $f | thing.v = $i | thing.n = $i | Thing.limit = $i
        Thing.scale = lambda self, t: t + 1 | thing.scale = lambda t: t - 1
        thing = Thing($f) | Thing.v = $f | del thing.v | Thing.twice = property(lambda self: 3.0)
        thing.__dict__.pop('n', None) | Thing.n = $i | Thing.__getattr__ = lambda self, name: 5.0
        thing.__dict__ = dict(thing.__dict__) | thing.limit = $i | Thing.__len__ = lambda self: 0
        Thing.__init__ = lambda self, v, name='x': vars(self).update(v=v)""",
    ),
    "things": Piece(
        "things = [Thing($f), Thing($f, 'second')]",
        {"O": "things[0] | things[-1]", "F": "sum(q.v for q in things) | things[0].v"},
        "things[0].v = $F | things.append(Thing($T)) | things[-1].n = $I | "
        "things[0] = things[-1] | things[0].peer = things[-1]",
        "things[0].v = $f | things.reverse() | things[0] = things[-1] | "
        "things.append(Thing($f)) | things[-1] = Thing($f)",
    ),
    "slotted": Piece(
        "class Slotted:\n    __slots__ = ('a', 'b')\n    def __init__(self, a):\n"
        "        self.a = a\n    def grow(self):\n        self.a += 1\n        return self.a\n"
        "slotted = Slotted($i)",
        {
            "I": "slotted.a | slotted.grow() | getattr(slotted, 'b', 2)",
            "A": "Slotted($T) | Slotted($I)",
        },
        "slotted.a = $I | slotted.b = $A | slotted.b = slotted | del slotted.a",
        "slotted.a = $i | slotted.b = $i | slotted = Slotted($i) | slotted.a = $f | del slotted.b",
    ),
    "sub": Piece(
        "class Sub(Thing):\n    def __init__(self, v):\n        super().__init__(v, 'sub')\n"
        "        self.calls = []\n    def scale(self, t):\n        self.calls.append(self.n)\n"
        "        return super().scale(t) + 1\n    @classmethod\n    def make(cls, v):\n"
        "        return cls(v)\n    @staticmethod\n    def half(t):\n        return t / 2\n"
        "sub = Sub($f)",
        {
            "T": "sub.scale($T) | Sub.half($T) | Sub.make($F).scale($T)",
            "O": "sub | Sub($T) | Sub.make($I)",
            "I": "len(sub.calls) | sub.n",
        },
        "sub.v = $F | sub.calls.clear() | sub.calls = [] | Sub.n = $I | sub.__class__ = Thing",
        "sub.v = $f | Sub.scale = Thing.scale | del Sub.scale | Sub.n = $i | Thing.n = $i | "
        "Thing.scale = lambda self, t: t | sub.calls.append(0) | sub.__class__ = Thing | "
        "Sub.__bases__ = (Thing,) | Sub.half = staticmethod(lambda t: t * 3)",
    ),
    "box": Piece(
        """class Box:
    def __init__(self, *items):
        self.items = list(items)
    def __getitem__(self, i):
        return self.items[i]
    def __setitem__(self, i, v):
        self.items[i] = v
    def __len__(self):
        return len(self.items)
    def __iter__(self):
        return iter(self.items)
    def __contains__(self, v):
        return any(v is q or (type(v) is type(q) is int and v == q) for q in self.items)
    def __bool__(self):
        return len(self.items) > 1
    def __add__(self, other):
        return Box(*self.items, other)
    def __eq__(self, other):
        return isinstance(other, Box) and len(self) == len(other)
    __hash__ = None
    def __call__(self, t):
        for q in self:
            t = t * q
        return t
    def __getattr__(self, name):
        if name.startswith('__'):
            raise AttributeError(name)
        return len(name)
    def __enter__(self):
        self.items.append(1)
        return self
    def __exit__(self, *error):
        self.items.pop()
        return error[0] is ValueError
box = Box($f, $i)""",
        {
            "T": "box($T) | sum(q * $T for q in box)",
            "I": "len(box) | box.anything",
            "B": "bool(box) | $I in box | box == Box($I)",
            "F": "box[0]",
            "A": "box + $T | Box($A)",
            "LI": "[q for q in box]",
        },
        "box[0] = $F | box.items.append($I) | box.name = $S | box = box + $I | with box:",
        "box[0] = $f | box.items.append($f) | box.items.pop() | "
        "Box.__len__ = lambda self: 1 | Box.__bool__ = lambda self: False | "
        "Box.__call__ = lambda self, t: t | box.anything = $i | box = Box($f)",
    ),
    "helper": Piece(
        "def helper(t, k=$i, *rest, flag=False, **named):\n    if flag:\n        t = -t\n"
        "    for q in rest:\n        t = t + q\n    return t * k + len(named)",
        {
            "T": (
                "helper($T) | helper($T, $I) | helper($T, $I, $F, flag=$B) | "
                "helper($T, z=$I, flag=True) | helper(*[$T, $I]) | helper($T, **$DI)"
            )
        },
        "helper.calls = getattr(helper, 'calls', 0) + 1",
        "helper.__defaults__ = ($i,) | helper.__kwdefaults__ = {'flag': True} | "
        "helper = lambda t, *a, **k: t | helper.__code__ = (lambda t, k=1, *rest, flag=False, "
        "**named: t - k).__code__",
    ),
    "recurse": Piece(
        "def recurse(n, t):\n    return t if n <= 0 else recurse(n - 1, t * 2) + n",
        {"T": "recurse($I % 4, $T)"},
        "",
        "recurse = lambda n, t: t",
    ),
    "counter": Piece(
        "def make_counter():\n    count = 0\n    history = []\n    def counter(step=1):\n"
        "        nonlocal count\n        count += step\n        history.append(count)\n"
        "        return count\n    return counter\ncounter = make_counter()",
        {"I": "counter() | counter($I)"},
        "counter()",
        "counter() | counter.__defaults__ = (2,) | counter = make_counter() | "
        "counter.__closure__[0].cell_contents = $i",
    ),
    "decorated": Piece(
        "calls = []\ndef traced(g):\n    @functools.wraps(g)\n"
        "    def inner(*args, **kwargs):\n        calls.append(g.__name__)\n"
        "        return g(*args, **kwargs)\n    return inner\n@traced\ndef decorated(t):\n"
        "    return t.sin()",
        {"T": "decorated($T)", "I": "len(calls)"},
        "calls.clear()",
        "calls.clear() | calls.append('x') | decorated = decorated.__wrapped__",
    ),
    "cached": Piece(
        "@functools.lru_cache(maxsize=None)\ndef cached(n):\n    return n * 2\n"
        "@functools.lru_cache(maxsize=None)\ndef table(n):\n"
        "    return torch.arange(float(n % 3 + 1))",
        {"I": "cached($I)", "T": "table($I)"},
        "",
        "cached.cache_clear() | table.cache_clear()",
    ),
    "gen": Piece(
        "def gen(n):\n    total = 0\n    for i in range(n):\n        got = yield i + total\n"
        "        total += got or 1\n    return total\n"
        "stream = iter([$i, $i, $i, $i, $i, $i, $i])",
        {"LI": "list(gen($I % 4))", "I": "sum(gen($I % 4)) | next(stream, 0)"},
        "next(stream, None)",
        "next(stream, None) | stream = iter([$i] * 5) | stream = gen(4)",
    ),
    "net": Piece(
        """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.tensor([0.5, -1.0, 2.0]))
        self.register_buffer('seen', torch.zeros(()))
        self.gain = $f
        self.steps = 0
        self.layers = nn.ModuleList([nn.Tanh(), nn.Dropout(0.5)])
    def forward(self, t, k=1):
        self.steps += 1
        if self.training:
            self.seen += 1
            self.seen = self.seen * 1
        for layer in self.layers:
            t = layer(t)
        return t * self.w.sum() * self.gain + k
net = Net()""",
        {
            "T": "net($T) | net($T, k=$I) | net.w | net.seen | net.forward($T)",
            "I": "net.steps | len(net.layers)",
            "B": "net.training",
            "A": "net | list(net.parameters()) | net.state_dict()",
        },
        "net.gain = $F | net.steps += 1 | net.w.data.add_($F) | net.seen.add_(1) | "
        "net.cache = $T | net.zero_grad() | net.eval() | net.train() | net.w.grad = None | "
        "net.w = nn.Parameter($T.detach()) | net.extra = nn.Parameter(torch.ones(1))",
        """net.train() | net.eval() | net.gain = $f | net.w.data.mul_(2) | net.w.data = $t
        net.w.requires_grad_(False) | net.layers.append(nn.ReLU()) | net.layers[0] = nn.ReLU()
        net = Net()
        net.w = nn.Parameter($t) | net.register_forward_hook(lambda m, a, r: r + 1)
        net.register_forward_pre_hook(lambda m, a: (a[0] * 2, *a[1:])) | net.double()
        net.zero_grad() | Net.forward = lambda self, t, k=1: t * k
        net.forward = lambda t, k=1: t + k
        net.load_state_dict({'w': torch.ones(3), 'seen': torch.ones(())})
        net.seen = torch.ones(()) | net.layers[1].p = 0.0 | net.layers[0].eval() | net.seen.add_(1)
        del net.layers[1]""",
    ),
    "linear": Piece(
        "torch.manual_seed(1)\nlinear = nn.Sequential(nn.Linear(3, 3), nn.ReLU())\n"
        "norm = nn.BatchNorm1d(3)",
        {
            "T": (
                "linear($T.reshape(-1)[:1].expand(3)) | linear(torch.ones(2, 3) * $F) | "
                "norm(linear(torch.ones(2, 3) * $F)) | linear[0].weight"
            )
        },
        "linear[0].bias.data.zero_() | norm.momentum = $F",
        "linear[0].weight.data.add_(1) | linear[0].bias = None | norm.eval() | norm.train() | "
        "linear[1] = nn.Tanh() | norm.reset_running_stats() | linear.requires_grad_(False) | "
        "linear.zero_grad()",
    ),
    "enum": Piece(
        "import enum\nclass Mode(enum.Enum):\n    ADD = 1\n    MUL = 2\nmode = Mode.ADD",
        {
            "T": "($T + 1 if mode is Mode.ADD else $T * 2)",
            "A": "mode | Mode.MUL",
            "B": "mode == Mode.ADD",
            "S": "mode.name",
        },
        "mode = Mode.MUL | mode = Mode(2)",
        "mode = Mode.MUL | mode = Mode.ADD",
    ),
    "meta": Piece(
        """class Positive:
    def __set_name__(self, owner, name):
        self.name = '_' + name
    def __get__(self, obj, owner=None):
        return self if obj is None else getattr(obj, self.name, 1)
    def __set__(self, obj, value):
        setattr(obj, self.name, abs(value))
class Meta(type):
    made = 0
    def __call__(cls, *args):
        Meta.made += 1
        return super().__call__(*args)
class Described(metaclass=Meta):
    size = Positive()
    def __init__(self, size=1):
        self.size = size
described = Described($i)""",
        {"I": "described.size | Described($I).size | Meta.made", "A": "Described($I)"},
        "described.size = $I | Meta.made = 0",
        "described.size = $i | Described.size = $i | Meta.made = $i | "
        "Positive.__get__ = lambda self, obj, owner=None: 7 | described._size = $i",
    ),
    "views": Piece(
        "base = torch.arange(6.0).view(2, 3)\nrow = base[0]\nflat = base.view(-1)",
        {"T": "base | row | flat[:3] | base[1]"},
        "row.add_($F) | base.mul_($F) | flat[0] = $F | base[0] = $T.reshape(-1)[0] | "
        "row = base[1] | flat[:3].copy_(base[1])",
        "row = base[1] | row = base[0].clone() | base.add_(1) | flat = flat.clone() | "
        "row = flat[:3]",
    ),
    "const": Piece(
        "DEFAULTS = ($i, $f, 'a')\nTABLE = types.MappingProxyType({'a': $f})\n"
        "config = types.SimpleNamespace(rate=$f, sizes=[$i, $i], on=True)",
        {
            "I": "DEFAULTS[0] | config.sizes[0] | len(config.sizes)",
            "F": "config.rate | TABLE['a'] | DEFAULTS[1]",
            "B": "config.on",
            "LI": "config.sizes",
        },
        "config.rate = $F | config.sizes.append($I) | config.last = $T | config.on = not config.on",
        "config.rate = $f | config.sizes = [$i] | config.on = $i | DEFAULTS = ($i, $f, 'b') | "
        "config.sizes.append($i) | config = types.SimpleNamespace(**vars(config))",
    ),
    "linked": Piece(
        "class Node:\n    def __init__(self, v, nxt=None):\n"
        "        self.v, self.nxt = v, nxt\n    def total(self):\n"
        "        return self.v + (self.nxt.total() if self.nxt else 0)\n"
        "head = Node($i, Node($i))",
        {"I": "head.total() | head.v", "A": "Node($T, head) | head.nxt"},
        "head = Node($I, head) | head.nxt = Node($T) | head.v += 1 | head.nxt = None | "
        "head.nxt = head",
        "head.v = $i | head = head.nxt or head | head.nxt = Node($i) | head.nxt = None",
    ),
    "text": Piece(
        "import io\nout = io.StringIO()",
        {},
        "print($I, file=out) | out.write($S) | print($T.sum().item(), file=out)",
        "out = io.StringIO() | out.write('-')",
    ),
    "closed": Piece(
        "def make_scaler(k, parts):\n    def scaler(t):\n        parts.append(k)\n"
        "        return t * k\n    return scaler\n"
        "scalers = [make_scaler($f, []), make_scaler($f, [1])]",
        {
            "T": "scalers[0]($T) | functools.reduce(lambda q, g: g(q), scalers, $T)",
            "A": "make_scaler($F, []) | make_scaler($T, gl_parts)",
        },
        "scalers.append(make_scaler($F, [])) | scalers.reverse()",
        "scalers.reverse() | scalers[0] = make_scaler($f, []) | "
        "scalers[0].__closure__[0].cell_contents = $f",
    ),
    "given": Piece(
        """class Keeping(torch.autograd.Function):
    @staticmethod
    def forward(ctx, g, v, t):
        ctx.v = v
        return g(v, t)
    @staticmethod
    def backward(ctx, d):
        return None, None, d * (len(ctx.v) + 1)
def kind(v, t):
    return t * (len(type(v).__name__) + len(v))
def counting(v, t):
    counting.n = getattr(counting, 'n', 0) + 1
    return t * counting.n
def keeping(g, v, t):
    return Keeping.apply(g, v, t)
def block(g, v, t):
    return torch.utils.checkpoint.checkpoint(g, v, t, use_reentrant=False)
def late(run, t, k):
    held = [k]
    def scaled(v, t):
        return t * held[0] * k
    t = run(scaled, (), t)
    if k == 2:
        held.append(k)
    if k == 3:
        k = 4
    return t
def loop(run, t, n):
    for i in range(n):
        t = run(lambda v, t: t * (i + 2), [i], t)
    return t
shared = [1, 2]""",
        {
            "T": "keeping(kind, $T.shape, $T) | block(kind, $T.shape, $T) | "
            "keeping(kind, collections.OrderedDict(a=$T), $T) | keeping(kind, shared, $T) | "
            "block(kind, $LT, $T) | keeping(kind, $LI, $T) | keeping(kind, $DI, $T) | "
            "late(keeping, $T, $I) | late(block, $T, $I) | loop(keeping, $T, $I % 3) | "
            "loop(block, $T, $I % 3) | keeping(counting, (), $T)",
        },
        "shared.append($I) | shared.pop() | $vT = keeping(kind, $vLI, $T); $vLI.append($I)",
        "shared.append($i) | shared = [$i] | kind = lambda v, t: t + 1",
    ),
    "context": Piece(
        "import contextlib\nlevels = []\n@contextlib.contextmanager\ndef level(n):\n"
        "    levels.append(n)\n    try:\n        yield n * 2\n    finally:\n"
        "        levels.pop()\nclass Custom(torch.autograd.Function):\n    @staticmethod\n"
        "    def forward(ctx, t):\n        ctx.save_for_backward(t)\n        return t * 2\n"
        "    @staticmethod\n    def backward(ctx, g):\n        return g * 3",
        {"I": "len(levels)", "T": "Custom.apply($T)"},
        "with level($I) as $+I:",
        "levels.append(1) | levels.clear()",
    ),
    "aio": Piece(
        "import asyncio\nlog = []\nasync def fetch(t, n):\n    for i in range(n):\n"
        "        log.append(i)\n        await asyncio.sleep(0)\n    return t * n\n"
        "async def both(t):\n    return await fetch(t, 1) + await fetch(t, 2)\n"
        "async def ticks(n):\n    for i in range(n):\n        yield i\n"
        "async def total(n):\n    return sum([i async for i in ticks(n)])",
        {
            "T": "drive(fetch($T, $I % 3)) | drive(both($T)) | asyncio.run(fetch($T, 1))",
            "I": "drive(total($I % 4)) | len(log)",
            "A": "fetch($T, 1)",
        },
        "log.clear()",
        "log.clear() | log.append('x')",
    ),
    "subclass": Piece(
        """class Tagged(torch.Tensor):
    tag = $i
    def up(self):
        return self * self.tag
class Logged(torch.Tensor):
    seen = []
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.seen.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})
class Wrapper:
    def __init__(self, t):
        self.t = t
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        args = [q.t if isinstance(q, Wrapper) else q for q in args]
        return func(*args, **(kwargs or {}))
tagged = torch.tensor([1.0, $f, 2.0]).as_subclass(Tagged)
logged = torch.tensor([$f, 2.0, 1.0]).as_subclass(Logged)
wrapper = Wrapper($t)""",
        {
            "T": (
                "tagged | tagged.up() | logged + 1 | torch.relu(logged) | torch.sin(wrapper) | "
                "torch.add(wrapper, $T) | tagged * $T | $T.as_subclass(Tagged) | "
                "tagged.as_subclass(torch.Tensor)"
            ),
            "I": "len(Logged.seen) | tagged.tag",
            "A": "tagged | Wrapper($T) | logged | type(tagged + 1).__name__",
        },
        "tagged.add_($F) | tagged.tag = $I | Logged.seen.clear() | wrapper.t = $T | "
        "Tagged.tag = $I",
        "tagged.tag = $i | Tagged.tag = $i | wrapper.t = $t | tagged = tagged.clone() | "
        "logged = logged.as_subclass(torch.Tensor) | Tagged.up = lambda self: self + 1 | "
        "tagged.add_(1) | Logged.seen.append('x')",
    ),
    "block": Piece(
        """seen = []
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleDict({'a': nn.Tanh(), 'b': nn.Identity()})
        self.scale = nn.ParameterList([nn.Parameter(torch.tensor($f)), nn.Parameter(torch.ones(1))])
        self.register_buffer('count', torch.zeros(1), persistent=False)
        self.which = 'a'
    def forward(self, t, *, extra=0):
        self.count += 1
        t = self.parts[self.which](t) + extra
        for p in self.scale:
            t = t * p
        return t
def note(module, args, out):
    seen.append(type(module).__name__)
def change(module, args, kwargs, out):
    return out + kwargs.get('extra', 1)
block = Block()
handle = block.parts['a'].register_forward_hook(note)""",
        {
            "T": "block($T) | block($T, extra=$I) | block.count | block.scale[0] | "
            "block.parts['a']($T)",
            "I": "len(seen) | len(list(block.parameters())) | len(block.parts)",
            "S": "block.which | ','.join(block.parts)",
            "A": "block.state_dict() | dict(block.named_buffers()) | seen",
            "B": "'b' in block.parts",
        },
        "block.which = 'b' | block.which = $S | block.parts['a'] = nn.ReLU() | seen.clear() | "
        "block.count = block.count + 1 | block.count.zero_() | block.zero_grad() | "
        "block.scale[0].data.mul_($F) | block.parts['c'] = nn.Tanh() | "
        "block.requires_grad_(False) | "
        "handle.remove() | block.eval() | block.scale.append(nn.Parameter(torch.ones(1)))",
        """block.which = 'b' | block.which = 'a' | block.parts['a'] = nn.ReLU() | handle.remove()
        block.register_forward_hook(change, with_kwargs=True) | block.register_forward_hook(note)
        block.scale[0] = nn.Parameter(torch.tensor($f)) | block.count = torch.zeros(1)
        block.scale[0].data.add_(1) | block.register_full_backward_hook(lambda m, a, b: None)
        block.parts['b'].register_forward_pre_hook(lambda m, a: (a[0] + 1,)) | seen.clear()
        block.double() | block.float() | block.register_buffer('count', torch.ones(1))
        block.parts = nn.ModuleDict({'a': nn.Identity()}) | del block.parts['b'] | block = Block()
        block.scale[0].register_hook(lambda g: g * 2) | block.__class__.forward = Block.forward
        handle = block.register_forward_hook(lambda m, a, out: out * 2) | block.count = None""",
    ),
    "dispatch": Piece(
        """@functools.singledispatch
def kind(v):
    return 0
@kind.register
def _(v: int):
    return v + 1
@kind.register(torch.Tensor)
def _(v):
    return v.numel()
class Lazy:
    def __init__(self, v):
        self.v = v
        self.made = 0
    @functools.cached_property
    def twice(self):
        self.made += 1
        return self.v * 2
    @functools.singledispatchmethod
    def put(self, v):
        self.v = v
        return 1
    @put.register
    def _(self, v: str):
        return len(v)
    add = functools.partialmethod(put)
@functools.total_ordering
class Rank:
    def __init__(self, n):
        self.n = n
    def __eq__(self, other):
        return self.n == other.n
    def __lt__(self, other):
        return self.n < other.n
lazy = Lazy($f)
part = functools.partial(pow, 2)
ranks = [Rank($i), Rank($i)]""",
        {
            "I": "kind($A) | kind($T) | kind($I) | lazy.put($S) | lazy.made | part($I % 3) | "
            "max(ranks).n",
            "F": "Lazy($F).twice | max(lazy.made, $F)",
            "A": "lazy.twice | Lazy($T) | part | min(ranks) | lazy.add($I)",
            "B": "ranks[0] < ranks[1] | ranks[0] >= Rank($I)",
            "LI": "[q.n for q in sorted(ranks)] | "
            "sorted($LI, key=functools.cmp_to_key(lambda q, r: r - q))",
        },
        "lazy.put($F) | lazy.__dict__.pop('twice', None) | ranks.sort() | ranks[0].n = $I | "
        "lazy = Lazy($F) | ranks.append(Rank($I)) | part = functools.partial(pow, $I)",
        "kind.register(str, len) | kind.register(int, lambda v: 5) | lazy = Lazy($f) | "
        "lazy.v = $i | "
        "part = functools.partial(pow, 3) | ranks.reverse() | ranks[0].n = $i | "
        "Rank.__lt__ = lambda self, other: self.n > other.n | lazy.__dict__.pop('twice', None)",
    ),
    "ordered": Piece(
        "god = collections.OrderedDict(a=$i, b=$i)\nchain = collections.ChainMap({'a': $i}, god)\n"
        "raw = bytearray(b'abc')\nnumbers = array.array('d', [$f, $f])\nheap = [$i, 4, 9]\n"
        "frozen = frozenset([$i, 4])",
        {
            "DI": "god | dict(chain)",
            "I": "god['a'] | next(iter(god.values())) | chain['b'] | raw[0] | heap[0] | len(raw)",
            "F": "numbers[0] | sum(numbers)",
            "S": "next(reversed(god), 'z') | raw.decode() | ','.join(god)",
            "B": "$I in frozen | 'a' in god | god == {'a': 1}",
            "LI": "list(god.values()) | sorted(frozen) | heap",
        },
        "god.move_to_end('a') | god['c'] = $I | god.popitem(last=False) | raw.append(99) | "
        "raw[0] = 100 | numbers[0] = $F | numbers.append($F) | heapq.heappush(heap, $I) | "
        "heapq.heappop(heap) | chain['n'] = $I | frozen = frozen.union([$I]) | god.pop('a', None)",
        "god.move_to_end('a') | god['a'] = $i | raw[0] = 101 | raw.extend(b'z') | "
        "numbers[0] = $f | heap.append(1) | god = collections.OrderedDict(b=1, a=2) | "
        "chain.maps[0]['b'] = 7 | frozen = frozenset() | god.move_to_end('b', last=False)",
    ),
    "weak": Piece(
        "class Owner:\n    pass\nowner = Owner()\nowner.n = $i\nwatch = weakref.ref(owner)\n"
        "pool = weakref.WeakValueDictionary({'a': owner})\n"
        "table2 = weakref.WeakKeyDictionary({owner: $i})",
        {
            "I": "watch().n | len(pool) | table2.get(owner, 0)",
            "B": "watch() is owner | watch() is None | 'a' in pool",
            "A": "watch() | weakref.ref(owner)",
        },
        "owner.n = $I | owner.t = $T | table2[owner] = $I",
        "owner.n = $i | watch = weakref.ref(owner) | table2[owner] = $i",
    ),
    "array": Piece(
        "gn = np.array([1.0, $f, 2.0], dtype=np.float32)\nshared = torch.from_numpy(gn)\n"
        "scalar = np.float64($f)",
        {
            "N": "gn | gn[1:]",
            "T": "shared | torch.from_numpy(gn) | torch.tensor(gn) * scalar",
            "F": "float(gn[0]) | scalar | gn.sum()",
            "I": "gn.size | int(gn.argmax())",
        },
        "gn[0] = $F | gn += $F | shared.add_(1) | gn = gn * 2 | gn.sort() | "
        "scalar = np.float64($F)",
        "gn[0] = $f | gn = gn.copy() | shared.mul_(2) | gn = gn.astype(np.float64) | "
        "scalar = np.float32($f) | gn = gn[:2] | scalar = $f",
    ),
    "later": Piece(
        "def lazily(ts, k):\n    for t in ts:\n        got = yield t * k\n"
        "        if got:\n            k = got\nkept = []\ndef pairs():\n"
        "    yield from enumerate(kept)\n    yield $i, None",
        {
            "A": "lazily($LT, $F) | lazily([$T], $I) | pairs() | (q for q in kept)",
            "LT": "list(lazily($LT, $F))",
            "I": "len(kept) | sum(1 for q in pairs())",
        },
        "kept.append(lazily($LT, $F)) | kept.append(iter($LI)) | kept.append(lambda: $T) | "
        "kept.append($T) | kept.clear() | use(kept)",
        "use(kept) | kept.clear() | kept.append(1) | kept[:] = use(kept)",
    ),
    "slots2": Piece(
        """class Money:
    __slots__ = ('n', '__weakref__')
    def __init__(self, n):
        self.n = n
    def __add__(self, other):
        return Money(self.n + getattr(other, 'n', other))
    __radd__ = __add__
    def __mul__(self, t):
        return t * self.n
    def __lt__(self, other):
        return self.n < other.n
    def __index__(self):
        return int(self.n)
    def __float__(self):
        return float(self.n)
    def __hash__(self):
        return hash(self.n)
    def __eq__(self, other):
        return isinstance(other, Money) and self.n == other.n
    def __format__(self, spec):
        return f'<{self.n}>'
money = Money($i)
purse = {Money(1): $i, Money(2): $i}""",
        {
            "T": "money * $T",
            "I": "(money + $I).n | sum([money, money]).n | purse.get(Money($I), 0) | "
            "[1, 2, 3][money] | operator.index(money) | len(range(money))",
            "F": "float(money) | math.sqrt(money)",
            "A": "money + money | sorted([money, Money($I)])[0] | min(money, Money($I))",
            "B": "money == Money($I) | money < Money($I)",
            "S": "f'{money}' | format(money, 'x')",
        },
        "money.n = $I | money = money + $I | purse[Money($I)] = $I | money += 1",
        "money.n = $i | money = Money($i) | purse.pop(Money(1), None) | purse[Money($i)] = 0 | "
        "Money.__add__ = lambda self, other: Money(0) | money.n = $f",
    ),
    "weird": Piece(
        "class Odd(list):\n    def __getitem__(self, i):\n        return 10\n"
        "    def append(self, v):\n        super().append(v)\n        super().append(v)\n"
        "class Loud(dict):\n    log = []\n    def __setitem__(self, k, v):\n"
        "        self.log.append(k)\n        super().__setitem__(k, v)\n"
        "    def __missing__(self, k):\n        return 3\nodd = Odd([$i, $i])\n"
        "loud = Loud(a=$i)",
        {
            "I": "odd[0] | len(odd) | loud['a'] | loud['none'] | len(loud)",
            "LI": "list(odd)",
            "DI": "loud",
            "A": "Odd([$I]) | Loud(k=$T)",
        },
        "odd.append($I) | loud[$S] = $I | loud.update(z=$I) | odd.tag = $I | "
        "Loud.log.clear() | odd[0] = $I",
        "odd.append($i) | loud['a'] = $i | Odd.__getitem__ = list.__getitem__ | "
        "del Loud.__missing__ | loud.pop('a', 0) | odd = Odd([$i])",
    ),
    "deciding": Piece(
        """notes = []
class Deciding(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t, k):
        if t.sum() > k:
            notes.append(k)
        ctx.save_for_backward(t)
        ctx.k = k
        return t * k
    @staticmethod
    def backward(ctx, g):
        (t,) = ctx.saved_tensors
        if (g * t).sum() > 2:
            notes.append('backward')
            return g, None
        return g * ctx.k, None
class Seen(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t):
        notes.append(tuple(t.shape))
        return t.clone()
    @staticmethod
    def backward(ctx, g):
        notes.append('seen')
        return g * len(notes)
def guarded(g):
    if g.sum() > 1:
        notes.append('hook')
        return g * 2
def counted(g):
    notes.append('counted')
def part(t):
    if t.sum() > 0:
        return t * 2
    notes.append('part')
    return t - 1""",
        {
            "T": "Deciding.apply($T, $F) | Deciding.apply($T, $I) | Seen.apply($T) | part($T) | "
            "torch.utils.checkpoint.checkpoint(part, $T, use_reentrant=False)",
            "I": "len(notes)",
        },
        "$vT.register_hook(guarded) | $vT.register_hook(counted) | notes.clear() | "
        "Deciding.apply($T, $F).sum().backward() | Seen.apply($T).sum().backward()",
        "notes.clear() | notes.append(1) | a0.register_hook(guarded) | "
        "part = lambda t: t + 1 | guarded = lambda g: g * 3 | backward(r)",
    ),
    "drawn": Piece(
        "tg = torch.Generator()\ntg.manual_seed($i + 9)\nrng = np.random.default_rng($i + 1)\n"
        "dice = random.Random($i)",
        {
            "T": "torch.rand(3, generator=tg) | torch.randperm(3, generator=tg).float() | "
            "torch.empty(3).normal_(generator=tg) | torch.randn(1, generator=tg) * $T | "
            "torch.bernoulli(torch.sigmoid($T), generator=tg)",
            "I": "dice.randint(0, 3) | int(rng.integers(3)) | tg.initial_seed() % 5",
            "F": "dice.random() | float(rng.random())",
        },
        "tg.manual_seed($I) | dice.seed($I) | $vT.uniform_(generator=tg)",
        "tg.manual_seed($i) | dice.seed($i) | torch.rand(1, generator=tg) | tg = torch.Generator()",
    ),
    "memory": Piece(
        "whole = np.arange(6.0, dtype=np.float32)\nmiddle = torch.from_numpy(whole[1:4])\n"
        "part_of = whole[2:5]\nraw8 = bytearray(12)\nover = torch.frombuffer(raw8, "
        "dtype=torch.float32)\nnumbers_of = a0.detach().numpy()",
        {
            "N": "whole | part_of | numbers_of | whole[::2] | middle.numpy() | over.numpy()",
            "T": "middle | over | torch.from_numpy(part_of) | torch.from_numpy(whole)[:3] | "
            "torch.frombuffer(raw8, dtype=torch.float32) | torch.asarray(whole)",
            "F": "float(whole[2]) | middle[1].item() | float(part_of.sum())",
            "I": "raw8[3] | int(whole.argmax())",
        },
        "whole[2] = $F | part_of += $F | middle.add_($F) | middle[1] = $F | over.fill_($F) | "
        "raw8[3] = 64 | numbers_of[...] = $F | whole = whole.copy() | part_of = whole[1:4] | "
        "middle = torch.from_numpy(whole[3:])",
        "whole[2] = $f | part_of = whole[1:4] | middle.mul_(2) | raw8[7] = 65 | over.zero_() | "
        "middle = middle.clone() | numbers_of = a0.detach().numpy() | whole[:] = whole[::-1] + 0",
    ),
    "absent": Piece(
        """import types as holder_types
holder = holder_types.ModuleType('holder')
def maybe():
    try:
        return missing
    except NameError:
        return 0
def imported():
    return getattr(holder, 'found', None) or 1
class Partly:
    def get(self):
        try:
            return self.some
        except AttributeError:
            return 2
partly = Partly()""",
        {
            "I": "maybe() | globals().get('missing', 4) | imported() | partly.get() | "
            "getattr(partly, 'some', 5) | vars(partly).get('some', 6)",
            "B": "'missing' in globals() | hasattr(holder, 'found') | hasattr(partly, 'some')",
        },
        "globals()['missing'] = $I | globals().pop('missing', None) | holder.found = $I | "
        "partly.some = $I | vars(partly).clear() | Partly.some = $I",
        "globals()['missing'] = $i | globals().pop('missing', None) | holder.found = $i | "
        "partly.some = $i | del partly.some | Partly.some = $i | del Partly.some | "
        "del holder.found",
    ),
    "nested": Piece(
        """done = []
def scaled(t, k=2):
    done.append(k)
    return t * k
def stepped(t, n):
    return t + n if n < 3 else -t
inner = also(scaled)
twice_over = functools.partial(inner, k=$i)
class Holder:
    rate = $f
    @also
    def run(self, t):
        self.rate += 1
        return t * self.rate
holder2 = Holder()
outer = also(lambda t: inner(t) + 1)
branches = [also(stepped), stepped, functools.partial(stepped, n=$i)]""",
        {
            "T": "inner($T) | inner($T, $I) | twice_over($T) | holder2.run($T) | outer($T) | "
            "branches[0]($T, $I) | branches[-1]($T) | scaled($T)",
            "LT": "list(map(inner, $LT)) | [twice_over(q) for q in $LT]",
            "I": "len(done)",
            "F": "holder2.rate",
            "A": "functools.partial(inner, k=3) | twice_over | holder2.run",
        },
        "done.clear() | holder2.rate = $F | Holder.rate = $F",
        "done.clear() | holder2.rate = $f | twice_over = functools.partial(inner, k=5) | "
        "inner = also(lambda t, k=1: t - k) | inner = scaled | branches.reverse() | "
        "scaled.__defaults__ = (7,) | holder2 = Holder() | Holder.run = lambda self, t: t | "
        "r = attempt(inner, a0)",
    ),
    "optim": Piece(
        """weight = nn.Parameter(torch.tensor([0.5, -1.0, 2.0]))
bias = nn.Parameter(torch.tensor([0.25]))
opt = torch.optim.SGD([weight, bias], lr=0.1, momentum=0.9)
adam = torch.optim.Adam([weight], lr=0.1)
plan = torch.optim.lr_scheduler.StepLR(opt, 2)
def train(t):
    opt.zero_grad()
    loss = ((weight * t.reshape(-1)[:1]).sum() + bias).square().sum()
    loss.backward()
    opt.step()
    return loss""",
        {
            "T": "weight | bias | weight.grad | train($T.detach()) | train(torch.ones(1) * $F)",
            "F": "opt.param_groups[0]['lr']",
            "I": "len(opt.state) | plan.last_epoch",
        },
        "opt.step() | adam.step() | opt.zero_grad() | opt.zero_grad(set_to_none=False) | "
        "plan.step() | adam.zero_grad() | opt.param_groups[0]['lr'] *= 0.5 | "
        "torch.nn.utils.clip_grad_norm_([weight, bias], $F) | weight.grad = $T.detach() | "
        "(weight * 2).sum().backward()",
        "opt.param_groups[0]['lr'] = $f | opt.state.clear() | weight.requires_grad_(False) | "
        "weight.data.mul_(2) | opt.zero_grad() | plan.step() | adam.step() | weight.grad = None | "
        "opt = torch.optim.SGD([weight], lr=0.5) | opt.load_state_dict(opt.state_dict()) | "
        "opt.add_param_group({'params': [nn.Parameter(torch.ones(1))]}) | "
        "opt.param_groups[0]['momentum'] = 0.0",
    ),
    "errors": Piece(
        """class Oops(Exception):
    count = 0
    def __init__(self, n, **more):
        super().__init__(n)
        self.n = n
        Oops.count += 1
def risky(n):
    if n > 2:
        raise Oops(n) from ValueError('cause')
    if n < 0:
        raise KeyError(n)
    return n
def safely(n):
    try:
        return risky(n)
    except Oops as error:
        trail.append(str(error.__cause__))
        return error.n
    except LookupError as error:
        trail.append(error)
        return len(error.args)
    finally:
        trail.append(n)
trail = []""",
        {
            "I": "safely($I) | len(trail) | Oops.count",
            "A": "Oops($I) | attempt(risky, $I) | trail[-1:]",
        },
        "trail.clear() | risky($I) | raise Oops($A) | Oops.count = 0",
        "trail.clear() | Oops.count = $i | risky = lambda n: 1 | "
        "Oops.__str__ = lambda self: 'oops' | Oops.__bases__ = (LookupError,)",
    ),
    "watched": Piece(
        """class Watched:
    log = []
    def __init__(self, v):
        self.v = v
    def __setattr__(self, name, value):
        self.log.append(name)
        object.__setattr__(self, name, value)
    def __delattr__(self, name):
        self.log.append('-' + name)
        object.__delattr__(self, name)
    def __getattr__(self, name):
        if name.startswith('_'):
            raise AttributeError(name)
        return len(name)
    def __getitem__(self, k):
        self.log.append(k)
        return self.v
class Size(int):
    unit = 'm'
    def __add__(self, other):
        return Size(int(self) + int(other))
    def __repr__(self):
        return f'{int(self)}{self.unit}'
class Name(str):
    def upper(self):
        return Name('up' + self)
class Span(tuple):
    def __new__(cls, *parts):
        return super().__new__(cls, parts)
    @property
    def width(self):
        return self[-1] - self[0]
watched = Watched($i)
size = Size($i)
size.tag = $i
name = Name('ab')
span = Span($i, 4)""",
        {
            "I": "watched.v | watched.other | len(Watched.log) | size | size + $I | span.width | "
            "span[0] | watched[0] | size.tag",
            "S": "name | name.upper() | repr(size) | str(span)",
            "A": "Watched($T) | Size($I) | span | Span($T, 2) | name.upper()",
            "B": "size == $I | name == 'ab' | span == (1, 4)",
        },
        "watched.v = $I | watched.t = $T | del watched.v | Watched.log.clear() | "
        "size = size + $I | Size.unit = $S | size.tag = $I | span = Span($I, 3)",
        "watched.v = $i | Size.unit = 'k' | size = Size($i) | name = Name('b') | size = $i | "
        "span = Span(0, $i) | Watched.__getattr__ = lambda self, name: 9 | Watched.log.append(0) | "
        "span = (1, 4) | size.tag = $i | Size.__add__ = int.__add__",
    ),
    "models": Piece(
        """torch.manual_seed(2)
cell = nn.GRUCell(3, 3)
rnn = nn.LSTM(3, 3)
table3 = nn.Embedding(4, 3)
heads = nn.MultiheadAttention(4, 2)
class Stateful(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(3, 3)
        self.hidden = None
        self.cache = []
    def forward(self, t):
        t = t.reshape(-1)[:1].expand(1, 3).float()
        self.hidden = self.cell(t, self.hidden)
        self.cache.append(self.hidden.detach())
        if len(self.cache) > 2:
            self.cache.pop(0)
        return torch.cat(self.cache).sum(0) + self.hidden
    def reset(self):
        self.hidden = None
        self.cache = []
stateful = Stateful()""",
        {
            "T": "cell($T.reshape(-1)[:1].expand(3).float()) | stateful($T) | "
            "table3(torch.tensor([$I % 4])) | rnn(torch.ones(2, 3) * $F)[0] | "
            "heads(*[torch.ones(2, 4) * $F] * 3)[0] | "
            "torch.func.functional_call(cell, {'bias_ih': torch.ones(9)}, "
            "(torch.ones(3) * $F,)) | torch.vmap(cell)(torch.ones(2, 3) * $F)",
            "I": "len(stateful.cache)",
        },
        "stateful.reset() | stateful.hidden = stateful.hidden.detach() | stateful.cache.clear() | "
        "table3.weight.data[0] = $F | heads.eval() | stateful.hidden = None",
        "stateful.reset() | stateful.hidden = None | table3.weight.data.mul_(2) | heads.eval() | "
        "heads.train() | rnn.dropout = 0.0 | cell.bias_ih.data.zero_() | stateful.eval() | "
        "cell.requires_grad_(False) | stateful.cache.append(torch.ones(1, 3)) | cell.double()",
    ),
    "transforms": Piece(
        """from torch import distributions
from torch.func import jacrev, jvp, vjp
spread = distributions.Normal(torch.zeros(3), torch.ones(3) * 2)
def energy(q):
    return (q * q).sum() * power
power = $f""",
        {
            "T": "spread.sample() | spread.log_prob($T.reshape(-1)[:1]).sum() | spread.rsample() | "
            "jacrev(energy)($T.detach().float()) | vjp(energy, $T.detach().float())[0] | "
            "jvp(torch.sin, ($T.detach().float(),), (torch.ones_like($T.detach().float()),))[1] | "
            "torch.func.grad(energy)($T.detach().float()) | "
            "torch.vmap(lambda q: q * power)(torch.ones(2, 3)) | "
            "torch.autograd.grad(energy($T.detach().float().requires_grad_()), [a0], "
            "allow_unused=True)[0] | torch.sparse_coo_tensor([[0, 1]], [$F, 1.0], (3,)).to_dense()",
        },
        "power = $F | spread.scale.mul_(2) | spread = distributions.Normal($F, 1.0)",
        "power = $f | spread.scale.mul_(2) | spread.loc = torch.ones(3) | "
        "energy = lambda q: q.sum() | distributions.Distribution.set_default_validate_args(True)",
    ),
    "scoped": Piece(
        """import io as text_io
events = []
class Scope:
    def __init__(self, name):
        self.name = name
    def __enter__(self):
        events.append(self.name)
        return self
    def __exit__(self, kind, error, trace):
        events.append(kind and kind.__name__)
        return kind is LookupError
@contextlib.contextmanager
def stage(n):
    try:
        yield n
    except ValueError as error:
        events.append(str(error))
    else:
        events.append(n)
sink = text_io.StringIO()
scope = Scope('s')""",
        {"I": "len(events)", "A": "events[-1:] | sink.getvalue()", "S": "scope.name"},
        "with scope: | with stage($I) as $+I: | with contextlib.redirect_stdout(sink): | "
        "with contextlib.ExitStack() as stack: | events.clear() | "
        "with Scope($S), stage($I): | with torch.random.fork_rng(): | "
        "with contextlib.closing(sink) if False else contextlib.nullcontext():",
        "events.clear() | scope.name = 'q' | Scope.__exit__ = lambda self, *a: True | "
        "sink = text_io.StringIO() | sink.truncate(0)",
    ),
    "grown": Piece(
        """class Grown:
    step = $i
    names = []
    def __init_subclass__(cls, **kw):
        cls.extra = [len(kw)]
        Grown.names.append(cls.__name__)
class Fixed:
    def __init__(self, v):
        self.v = v
        self.seen = 0
    def __get__(self, o, t):
        self.seen += 1
        return self.v
def grown(n):
    class Local(Grown, q=n):
        count = 0
        items = [n]
        fixed = Fixed(n)
        def bump(self, t):
            Local.count += 1
            self.items.append(self.count)
            return t * self.count + self.step
    return Local
def tallied(t, n):
    local = grown(n)
    for _ in range(2):
        t = local().bump(t)
    return t, local.items, local.extra, vars(local)['fixed'].seen
def spot(t, n):
    return collections.namedtuple('Spot', 't n')(t, n)
def counts(t):
    global n
    n += 1
    seen.append(n)
    return t * n
def apart(n):
    space = {'n': n, 'seen': []}
    return types.FunctionType(counts.__code__, space), space
def run_in(n):
    space = {'n': n, 'seen': []}
    exec('def g(t):\\n    global n\\n    n += 1\\n    seen.append(n)\\n    return t * n', space)
    return space
space_of = types.ModuleType('space_of')
space_of.n, space_of.net = $i, torch.sin
Grown.step_of = lambda self: self.step
ticks = np.ones(3, dtype='float32') * $i""",
        {
            "T": "$T * ticks | ticks[0] * $T | $T + $T.detach().numpy() | "
            "vars(space_of)['net']($T) | apart($I)[0]($T) | run_in($I)['g']($T) | "
            "tallied($T, $I)[0] | "
            "grown($I)().bump($T) | spot($T, $I).t * spot($T, $I)[1]",
            "B": "hasattr(Grown().step_of, 'tag') | 'n' in vars(space_of)",
            "LI": "tallied($T, $I)[1] | grown($I).items | grown($I).extra",
            "I": "getattr(Grown().step_of, 'tag', 0) | space_of.__dict__['n'] | "
            "eval('n + 1', {'n': $I}) | grown($I).count | len(Grown.names) | "
            "tallied($T, $I)[3] | grown($I)().fixed | "
            "type('Made', (Grown,), {'v': $I}).v | spot($T, $I)._replace(n=$I).n",
            "A": "apart($I) | run_in($I)['seen'] | grown($I) | grown($I)() | spot($T, $I) | "
            "list(spot($T, $I)) | type('Made', (), {'v': $A})().v | grown($I)().bump",
        },
        "Grown.step += 1 | Grown.names.clear() | space_of.n += 1 | ticks[0] += 1 | "
        "space_of.__dict__['n'] = $I | Grown().step_of.__dict__['tag'] = $I",
        "space_of.n = $i | space_of.net = torch.cos | Grown.step_of.tag = $i | ticks = ticks + 1 | "
        "Grown.step = $i | Grown.names.clear() | Grown.bump = None | "
        "Grown.__init_subclass__ = classmethod(lambda cls, **kw: setattr(cls, 'extra', [])) | "
        "Fixed.__get__ = lambda self, o, t: 7",
    ),
}

_TENSORS = [
    "torch.tensor([1.0, -2.0, 0.5])",
    "torch.tensor([[1.0, 2.0, -3.0], [0.5, 0.0, 4.0]])",
    "torch.tensor([2.0])",
    "torch.tensor(1.5)",
    "torch.arange(3.0)",
    "torch.arange(6.0).view(2, 3).T",
    "torch.arange(6.0)[::2]",
    "torch.tensor([1.0, -2.0, 0.5], requires_grad=True)",
    "torch.tensor([[1.0, 2.0, -3.0]], requires_grad=True)",
    "torch.tensor([1, 2, 3])",
    "torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)",
    "torch.tensor([True, False, True])",
]
_TENSOR_WEIGHTS = [10, 5, 2, 3, 4, 2, 1, 5, 2, 1, 1, 1]
_PLACE = re.compile(r"\$([+=]?)(\w+)")
_ASSIGNABLE = re.compile(r"""[A-Za-z_][\w.]*(\[[\w'"-]+\])?""")
_DEEP = 3


def _split(text):
    out = []
    for line in text.splitlines():
        out.extend(x.strip() for x in line.split(" | ") if x.strip())
    return out


_EXPRESSIONS = {t: _split(text) for t, text in EXPRESSIONS.items()}
_STATEMENTS = [line for line in STATEMENTS.splitlines() if line.strip()]
_PARSED = {
    name: (
        {t: _split(x) for t, x in piece.uses.items()},
        _split(piece.acts),
        _split(piece.changes),
    )
    for name, piece in PIECES.items()
}
_TYPES = tuple(EXPRESSIONS)
_WORD = re.compile(r"[A-Za-z_]\w*")
_BASE_WORDS = {name: set(_WORD.findall(text)) & set(BASE) for name, text in BASE.items()}


def _names_bound(setup):
    """The names that a piece's setup binds in its module."""
    code = compile(re.sub(r"\$\w+", "x", setup), worlds.FILE, "exec", dont_inherit=True)
    return frozenset(i.argval for i in dis.get_instructions(code) if i.opname == "STORE_NAME")


_NAMES = {name: _names_bound(piece.setup) for name, piece in PIECES.items()}


class _NoPlace(Exception):
    """Nothing of the type can be assigned to."""


class Writer:
    """Fills templates.

    Args:
        rng: the source of randomness.
        pieces: names of the pieces of the world.
    """

    def __init__(self, rng, pieces):
        self.rng = rng
        self.scope = {t: [] for t in _TYPES}
        self.outside = {t: [] for t in _TYPES}
        self.acts = []
        for name in pieces:
            uses, acts, _ = _PARSED[name]
            for t, expressions in uses.items():
                self.outside[t].extend(expressions)
            self.acts.extend(acts)
        self.count = 0
        self.locals = True

    def name(self, prefix):
        self.count += 1
        return f"{prefix}{self.count}"

    def literal(self, kind):
        rng = self.rng
        if kind == "i":
            return str(rng.choice([0, 1, 2, 2, 3, 5, -1]))
        if kind == "f":
            return str(rng.choice([0.5, 1.5, 2.0, -1.0, 0.0, 3.0]))
        if kind == "s":
            return repr(rng.choice(["a", "b", "ab", "key"]))
        return rng.choices(_TENSORS, _TENSOR_WEIGHTS)[0]

    def expression(self, t, depth):
        """An expression of a type."""
        rng = self.rng
        known = self.scope[t] if self.locals else []
        r = rng.random()
        if known and (depth <= 0 or r < 0.45):
            return rng.choice(known)
        if self.outside[t] and r < 0.7 and depth > -2:
            return self.fill(rng.choice(self.outside[t]), depth - 1)
        if depth <= 0:
            if t in ("I", "F", "S"):
                return self.literal(t.lower())
            simple = {"B": "True", "A": "None", "LI": "[1, 2]", "DI": "{'a': 1}", "O": "Thing(2.0)"}
            simple |= {"N": "np.ones(3)", "IT": "iter([1, 2])"}
            simple |= {"LT": "[torch.ones(3)]", "DT": "{'a': torch.ones(3)}"}
            return simple.get(t) or self.literal("t")
        return self.fill(rng.choice(_EXPRESSIONS[t]), depth - 1)

    def fill(self, template, depth, new=None):
        """The template with its places filled; new variables go to `new`."""

        def place(m):
            mark, kind = m.groups()
            if kind in "ifst":
                return self.literal(kind)
            if mark == "=":
                mine = [v for v in self.scope[kind] if v.isidentifier() and v not in self.fixed]
                if mine and self.rng.random() < 0.4:
                    return self.rng.choice(mine)
            if mark:
                name = self.name(kind.lower())
                if new is not None:
                    new.append((kind, name))
                return name
            if kind[0] == "v" and kind[1:] in self.scope:
                kind = kind[1:]
                places = [v for v in self.scope[kind] if v.isidentifier()]
                other = [v for v in self.outside[kind] if _ASSIGNABLE.fullmatch(v)]
                if other and (not places or self.rng.random() < 0.3):
                    places = other
                if not places:
                    raise _NoPlace
                return self.rng.choice(places)
            if kind[:2] == "fn":
                name = self.name("fn")
                if new is not None:
                    new.append((kind, name))
                return name
            text = self.expression(kind, depth)
            return (
                text if text.isidentifier() or text[-1] in ")]}" and text[0] != "-" else f"({text})"
            )

        return _PLACE.sub(place, template)

    fixed = frozenset()

    # ------------------------------------------------------------- statements

    def block(self, size, indent, depth):
        """Some statements; what they define is known only inside."""
        saved = {t: list(v) for t, v in self.scope.items()}
        lines = []
        for _ in range(size):
            lines.extend(self.statement(indent, depth))
        inner = self.scope
        self.scope = saved
        return lines or [" " * indent + "pass"], inner

    def statement(self, indent, depth):
        """One statement with its blocks, as lines."""
        rng = self.rng
        template = rng.choice(self.acts if self.acts and rng.random() < 0.35 else _STATEMENTS)
        template, _, shape = template.partition("#")
        if template.endswith(":") and depth <= 0:
            template, shape = "$=T = $T", ""
        new = []
        if shape.startswith("$vI"):
            mine = [v for v in self.scope["I"] if v.isidentifier() and v not in self.fixed]
            if not mine:
                template, shape = "$=I = $i", ""
            else:
                v = rng.choice(mine)
                template, shape = template.replace("$vI", v), shape.replace("$vI", v)
        try:
            line = self.fill(template, _DEEP, new)
        except _NoPlace:
            return self.statement(indent, depth)
        pad = " " * indent
        if not template.endswith(":"):
            self._declare(new)
            return [pad + line]
        return self._compound(pad + line, shape, new, indent, depth)

    def _declare(self, new):
        for kind, name in new:
            if kind in self.scope:
                self.scope[kind].append(name)

    def _compound(self, head, shape, new, indent, depth):
        rng, pad = self.rng, " " * indent
        inside = indent + 4
        size = rng.randint(1, 3)
        if shape in ("inner", "nonlocal", "generator"):
            return self._inner(head, shape, new, indent, depth)
        if shape == "class":
            return self._class(head, new, indent, depth)
        if shape in ("match", "match2"):
            a, _ = self.block(1, inside + 4, depth - 1)
            b, _ = self.block(1, inside + 4, depth - 1)
            c, _ = self.block(1, inside + 4, depth - 1)
            space = " " * inside
            first, second = "int() | float()", "[first, *_]"
            if shape == "match2":
                first = rng.choice(
                    ["Thing(v=value)", "{'a': first}", "Pair(t, n)", "None", "str() | bool()"]
                )
                second = rng.choice(
                    ["[_, *rest] if len(rest) > 1", "Record(n=1)", "{'k': _, **rest}", "0 | 1 | 2"]
                )
            cases = [f"case {first}:", f"case {second}:", "case _:"]
            return [
                head,
                *(x for case, b in zip(cases, (a, b, c), strict=True) for x in (space + case, *b)),
            ]
        outer = {t: list(v) for t, v in self.scope.items()}
        self._declare(new)
        fixed = self.fixed
        if head.lstrip().startswith("while"):
            self.fixed = fixed | {shape.partition(" ")[0]}  # so that it ends
        body, _ = self.block(size, inside, depth - 1)
        self.scope, self.fixed = outer, fixed
        lines = [head, *body]
        if shape == "else":
            other, _ = self.block(rng.randint(1, 2), inside, depth - 1)
            lines += [pad + "else:", *other]
        elif shape == "except":
            other, _ = self.block(1, inside, depth - 1)
            error = rng.choice(
                ["Exception", "(ValueError, RuntimeError)", "KeyError", "Exception as error"]
            )
            lines += [pad + f"except {error}:", *other]
        elif shape == "return":
            lines.append(" " * inside + "return " + self.expression("A", 2))
            other, _ = self.block(1, inside, depth - 1)
            lines += [pad + "finally:", *other]
        elif shape == "break":
            lines.append(" " * inside + "break")
        elif shape == "finally":
            other, _ = self.block(1, inside, depth - 1)
            lines += [pad + "finally:", *other]
        elif shape == "raise":
            what = rng.choice(
                [
                    "ValueError('no')",
                    "KeyError('k')",
                    "[].pop()",
                    "{}['x']",
                    "torch.ones(2) @ torch.ones(3)",
                    "None.x",
                ]
            )
            if what.partition("(")[0].endswith("Error"):
                what = f"raise {what}"
            lines.insert(1 if rng.random() < 0.5 else len(lines), " " * inside + what)
            other, _ = self.block(1, inside, depth - 1)
            lines += [pad + "except Exception:", *other]
        elif shape:
            lines.append(" " * inside + shape)
        elif head.lstrip().startswith(("for", "while")) and rng.random() < 0.3:
            word = rng.choice(["break", "continue"])
            lines.append(" " * inside + self.fill("if $B: ", 2) + word)
        return lines

    def _class(self, head, new, indent, depth):
        name = new[-1][1]
        inside, pad = indent + 8, " " * (indent + 4)
        saved = {t: list(v) for t, v in self.scope.items()}
        base = self.rng.choice(["", "", "(Thing)", "(list)", "(dict)"])
        if base == "":
            setup = [f"{pad}n = {self.expression('I', 1)}"]
        else:
            setup = [f"{pad}n = {self.literal('i')}"]
        self.scope["T"].append("q")
        self.scope["I"].append("self.n")
        body, inner = self.block(1, inside, depth - 1)
        self.scope = inner
        lines = [
            head[:-1] + f"{base}:",
            *setup,
            f"{pad}def m(self, q):",
            *body,
            " " * inside + "return " + self.expression("T", 2),
        ]
        self.scope = saved
        made = f"{name}({self.literal('f')})" if base == "(Thing)" else f"{name}()"
        self.scope["T"].append(f"{made}.m({self.expression('T', 1)})")
        self.scope["I"].append(f"{name}.n")
        self.scope["A"].append(made)
        if base == "(Thing)":
            self.scope["O"].append(made)
        return lines

    def _inner(self, head, shape, new, indent, depth):
        rng = self.rng
        inside, pad = indent + 4, " " * (indent + 4)
        name = new[-1][1] if shape != "inner" else next(n for k, n in new if k == "fnT")
        if shape == "nonlocal":
            count = self.name("n")
            lines = [
                " " * indent + f"{count} = {self.literal('i')}",
                head,
                pad + f"nonlocal {count}",
            ]
            body, _ = self.block(1, inside, depth - 1)
            lines += [*body, pad + f"{count} += {self.literal('i')}", pad + f"return {count}"]
            self.scope["I"].append(f"{name}()")
            self.scope["A"].append(name)
            return lines
        saved = {t: list(v) for t, v in self.scope.items()}
        if shape == "generator":
            body, _ = self.block(1, inside + 4, depth - 1)
            lines = [
                head,
                pad + "for j in range(n % 3):",
                *body,
                pad + "    yield " + self.expression("T", 2) + " * j",
            ]
            self.scope = saved
            self.scope["LT"].append(f"list({name}({self.literal('i')}))")
            return lines
        self.scope["T"].append("q")
        if "r=" in head:
            self.scope["F"].append("r")
        body, inner = self.block(rng.randint(1, 2), inside, depth - 1)
        self.scope = inner
        lines = [head, *body, pad + "return " + self.expression("T", 2)]
        self.scope = saved
        self.scope["T"].append(f"{name}({self.expression('T', 1)})")
        if rng.random() < 0.3:
            self.scope["A"].append(name)
        return lines


# ---------------------------------------------------------------- whole programs

_SIGNATURES = ["T", "T", "T", "T", "I", "F", "B", "S", "LT", "DT", "A", "LI", "DI", "O", "N", "IT"]
_EXTRA_ARGUMENTS = {
    "T": [
        "a0",
        "a0",
        "a1",
        "a1.clone()",
        "a0.double()",
        "a0[..., :1]",
        "a0.detach()",
        "a2",
        "a0.T",
        "a1.requires_grad_()",
    ],
    "LT": ["[a0, a1]", "[a0, a0]", "[a0]", "al", "(a0, a1)", "[a0, a0[..., 0]]"],
    "DT": [
        "{'a': a0}",
        "{'a': a0, 'b': a1}",
        "ad",
        "{'b': a0, 'a': a0}",
        "collections.OrderedDict(a=a1)",
    ],
    "I": ["0", "1", "2", "3", "7", "True", "2.0", "300", "-1"],
    "F": ["0.5", "1.0", "2", "-0.0", "0.0", "1e9"],
    "B": ["True", "False", "None", "1", "[]"],
    "S": ["'a'", "'b'", "'ab'", "''"],
    "LI": ["[1, 2]", "[3]", "[1, 2, 3]", "ali", "(1, 2)", "[]"],
    "DI": ["{'a': 1}", "{'a': 2, 'b': 3}", "adi", "{}", "{'b': 1, 'a': 1}"],
    "O": ["ao", "Thing(2.0)", "Thing(a0)", "Thing(3)"],
    "N": ["an", "an", "np.ones(3, dtype=np.float32)", "a1.detach().numpy()", "an[:2]", "an[::2]"],
    "IT": ["iter([1, 2, 3])", "ait", "iter(ali)", "(q for q in [1, 2])", "map(abs, ali)"],
    "A": [
        "None",
        "a0",
        "1",
        "'s'",
        "[a0, 1]",
        "{'a': a1}",
        "Pair(a0, 2)",
        "Record(a1)",
        "(a0, (a1, 1))",
        "ao",
        "al",
        "len",
        "an",
        "ait",
        "iter(al)",
        "1 + 2j",
        "np.float32(2)",
        "functools.partial(torch.add, a0)",
        "(lambda: a0)",
        "a0.shape",
        "torch.float64",
    ],
}
_ARGUMENT_SETUP = (
    "a0 = $t\na1 = $t\na2 = $t\nal = [a0, a1]\nad = {'a': a0, 'b': a1}\nali = [$i, $i]\n"
    "adi = {'a': $i}\nao = Thing($f)\nan = np.array([1.0, $f, 2.0], dtype=np.float32)\n"
    "ait = iter([$i, $i, $i, $i, $i, $i])\n"
)
_ARGUMENT_NAMES = _names_bound(_ARGUMENT_SETUP)
_ARGUMENT_CHANGES = _split(
    """a0.add_(1) | a0 = $t | a0 = a0.clone() | a1 = a0 | a0.requires_grad_() | a0.data = $t
    al.append($t) | al[0] = a1
    ad['c'] = $t | ad.pop('b', None) | ali.append($i) | adi['a'] = $i | ao.v = $i | ao.extra = $i
    a1 = a0.view(-1) | a1 = $t
    poke(r) | a0 = r if isinstance(r, torch.Tensor) else a0 | backward(r) | random.seed($i)
    torch.manual_seed($i) | np.random.seed($i)
    Thing.n = $i | Thing.limit = $i | Thing.scale = lambda self, t: t | Pair.n = 3 | a0.grad = None
    al = list(al) | al = [a0] | r = None | a0.zero_() | r = use(r) | r = use(r) | poke(r)
    torch.set_default_dtype(torch.float64) | torch.set_default_dtype(torch.float32)
    torch.set_grad_enabled(False) | torch.set_grad_enabled(True) | an[0] = $f | an = an * 2
    an = an.astype(np.float64) | next(ait, None) | ait = iter([1, 2, 3]) | ait = iter(ali)
    a0 = a0.to(torch.complex64) | a0.retain_grad() | a0.register_hook(lambda g: g * 3)
    a0 = torch.ones(4) | a0 = torch.ones(5) | a0 = torch.ones(6) | ali[:] = [7] | del al[-1]
    a0.tag = $i | del ao.v | a0.t_() | a0.unsqueeze_(0) | a1 = a0[:1] | a1 = a0.detach()"""
)


class _Module:
    """A program in the making."""

    def __init__(self, rng):
        self.rng = rng
        k = rng.choice([1, 2, 2, 3, 3, 4, 5])
        self.pieces = rng.sample(sorted(PIECES), k)
        self.writer = Writer(rng, self.pieces)

    def text(self):
        """The whole source."""
        rng, w = self.rng, self.writer
        w.locals = False
        world = w.fill(_ARGUMENT_SETUP, 0)
        outside, w.outside = w.outside, {t: [] for t in _TYPES}
        for name in self.pieces:
            world += w.fill(PIECES[name].setup, 0) + "\n"
        w.outside = outside
        w.locals = True
        kinds = [rng.choice(_SIGNATURES) for _ in range(rng.choice([0, 1, 1, 2, 2, 2, 3]))]
        if rng.random() < 0.85:
            kinds.insert(0, "T")
        function = self._function(kinds)
        text = f"{world}{function}{self._steps(kinds)}"
        used = set(_WORD.findall(text))
        for name, words in reversed(_BASE_WORDS.items()):
            if name in used:
                used |= words
        base = "".join(f"{BASE[name]}\n" for name in BASE if name in used)
        self.names = _ARGUMENT_NAMES.union(*(_NAMES[name] for name in self.pieces), BASE)
        return base + text

    def _function(self, kinds):
        rng, w = self.rng, self.writer
        names = [f"p{i}" for i in range(len(kinds))]
        first_default = rng.randint(1, len(kinds)) if kinds and rng.random() < 0.3 else len(kinds)
        self.parameters = list(zip(names, kinds, strict=True))
        head = []
        for i, (name, kind) in enumerate(self.parameters):
            head.append(name if i < first_default else f"{name}={_EXTRA_ARGUMENTS[kind][0]}")
            w.scope[kind].append(name)
            if kind != "A":
                w.scope["A"].append(name)
        self.required = first_default
        method = "thing" in self.pieces and rng.random() < 0.25
        if method:
            head.insert(0, "self")
            w.scope["O"].append("self")
        lines = []
        self.kind = rng.choices(["plain", "generator", "async"], [92, 4, 4])[0]
        for _ in range(rng.choice([1, 2, 3, 4, 5, 6, 7, 8, 10, 12])):
            lines.extend(w.statement(4, 2))
            if self.kind == "generator" and rng.random() < 0.4:
                lines.append(f"    yield {w.expression('A', 2)}")
            elif self.kind == "async" and rng.random() < 0.4:
                lines.append("    await asyncio.sleep(0)")
        if rng.random() < 0.9:
            kind = rng.choice(["A", "T", "T", "A", "LT", "DT", "O", "I"])
            mine = [v for t in ("T", "A", "LT", "DT", "O", "I", "F") for v in w.scope[t]]
            if mine and rng.random() < 0.5:
                result = ", ".join(rng.sample(mine, min(len(mine), rng.randint(1, 4))))
            else:
                result = w.expression(kind, 3)
            lines.append(f"    return {result}")
        word = "async def" if self.kind == "async" else "def"
        text = f"{word} f({', '.join(head)}):\n" + "\n".join(lines) + "\n"
        if method:
            return text + "Thing.run = f\ntarget = thing.run\n"
        if "net" in self.pieces and rng.random() < 0.2:
            return text + "target = net\n"
        return text + "target = f\n"

    def _arguments(self):
        rng = self.rng
        parts = []
        for i, (_, kind) in enumerate(self.parameters):
            if i >= self.required and rng.random() < 0.5:
                break
            choices = _EXTRA_ARGUMENTS[kind]
            outside = [x for x in self.writer.outside[kind] if x.isidentifier()]
            if outside and rng.random() < 0.25:
                text = rng.choice(outside)
            elif rng.random() < 0.1:
                text = rng.choice(_EXTRA_ARGUMENTS[rng.choice(_SIGNATURES)])
            else:
                text = rng.choice(choices)
            parts.append(text)
        if parts and rng.random() < 0.15:
            i = rng.randrange(len(parts))
            parts[i:] = [f"{self.parameters[j][0]}={parts[j]}" for j in range(i, len(parts))]
        return ", ".join(parts)

    def _call(self, lines, form):
        """One call, or a few of them with something that varies."""
        rng = self.rng
        r, caller = rng.random(), "attempt"
        call = f"r = attempt(f, {form})"
        if self.kind != "plain" and rng.random() < 0.8:
            call = f"r = use(attempt(f, {form}))"
        if r < 0.08:
            mode = rng.choice(
                [
                    "torch.no_grad()",
                    "torch.inference_mode()",
                    "torch.autocast('cpu', dtype=torch.bfloat16)",
                    "torch.set_grad_enabled(False)",
                ]
            )
            lines += [f"    with {mode}:", f"        {call}"]
        elif r < 0.12:
            lines.append(f"    {call.replace('attempt(f', 'in_thread(f')}")
        elif r < 0.2 and self.parameters and "=" not in form.partition("(")[0]:
            i = rng.randrange(len(self.parameters))
            kind = self.parameters[i][1]
            parts = [rng.choice(_EXTRA_ARGUMENTS[k]) for _, k in self.parameters]
            parts[i] = {
                "T": "torch.ones(j)",
                "I": "j",
                "F": "j / 4",
                "S": "'x' * j",
                "LI": "[1] * j",
                "LT": "[a0] * j",
                "B": "j % 2",
                "N": "np.ones(j)",
            }.get(kind, "j")
            lines += [
                f"    for j in {rng.choice(['range(2, 6)', '(3, 1, 0, 3)', '(1, 1.0, True)'])}:",
                f"        r = use({caller}(f, {', '.join(parts)}))"
                if self.kind != "plain"
                else f"        r = {caller}(f, {', '.join(parts)})",
                "        yield r",
            ]
        else:
            lines.append(f"    {call}")

    def _steps(self, kinds):
        rng, w = self.rng, self.writer
        forms = [self._arguments() for _ in range(rng.choice([1, 2, 2, 3]))]
        changes = list(_ARGUMENT_CHANGES)
        for name in self.pieces:
            changes.extend(_PARSED[name][2] * 4)
        saved, w.outside, w.locals = w.outside, {t: [] for t in _TYPES}, False
        lines = ["def steps(f):", "    r = None"]
        form = forms[0]
        for i in range(rng.randint(5, 9)):
            if i > 1 and rng.random() < 0.55:
                change = w.fill(rng.choice(changes), 0)
                lines += ["    try:", f"        {change}", "    except Exception:", "        pass"]
            if rng.random() < 0.35:
                form = rng.choice(forms)
            self._call(lines, form)
            if rng.random() < 0.2:
                lines.append("    backward(r)")
            lines.append("    yield r")
        w.outside, w.locals = saved, True
        return "\n".join(lines) + "\n"


def _functions_in(code):
    """The code objects of the functions defined in one, and in those."""
    for x in code.co_consts:
        if isinstance(x, types.CodeType):
            if x.co_name[0] != "<":
                yield x
            yield from _functions_in(x)


def declare_globals(source, names):
    """The source with the `global` lines that the functions in it need for these names."""
    code = compile(source, worlds.FILE, "exec", dont_inherit=True)
    wanted = {}
    for function in _functions_in(code):
        if not function.co_flags & inspect.CO_OPTIMIZED:
            continue  # a class
        count = function.co_argcount + function.co_kwonlyargcount
        count += bool(function.co_flags & inspect.CO_VARARGS)
        count += bool(function.co_flags & inspect.CO_VARKEYWORDS)
        parameters = function.co_varnames[:count]
        stored = {*function.co_varnames, *function.co_cellvars}.difference(parameters) & names
        if stored:
            wanted[function.co_firstlineno] = stored
    if not wanted:
        return source
    out = []
    for number, line in enumerate(source.split("\n"), 1):
        out.append(line)
        if number in wanted:
            indent = len(line) - len(line.lstrip()) + 4
            out.append(f"{' ' * indent}global {', '.join(sorted(wanted[number]))}")
    return "\n".join(out)


def _raising_line(error):
    tb, line = error.__traceback__, None
    while tb is not None:
        code = tb.tb_frame.f_code
        if code.co_filename == worlds.FILE and code.co_name not in ("steps", "attempt"):
            name = code.co_qualname
            if name == "f" or name.startswith("f.<locals>"):
                line = tb.tb_lineno
        tb = tb.tb_next
    return line


def _statement_at(tree, line):
    """The innermost statement that contains a line, or None."""
    found = None
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and node.lineno <= line <= node.end_lineno:
            found = node  # breadth first: the last one is among the innermost
    return found


def _without_line(source, line):
    """The source without the statement of `f` at a line, or None if there is none."""
    lines = source.split("\n")
    first = next(i for i, x in enumerate(lines) if x.startswith(("def f(", "async def f(")))
    last = next(i for i, x in enumerate(lines) if i > first and x[:1] not in ("", " "))
    tree = ast.parse("\n".join(lines[first:last]))
    statement = _statement_at(tree, line - first)
    if statement is None or statement is tree.body[0]:
        return None
    at, end = statement.lineno - 1 + first, statement.end_lineno - 1 + first
    word = "return None" if isinstance(statement, ast.Return) else "pass"
    before = lines[at][: statement.col_offset]
    lines[at : end + 1] = [before + word + lines[end][statement.end_col_offset :]]
    return "\n".join(lines)


_MENDS = 12


def mend(source):
    """The program without the statements that raise in the first call."""
    for _ in range(_MENDS):
        try:
            code = worlds.compiled_source(source)
        except SyntaxError:
            return None
        try:
            error = worlds.first_result(code)
        except Exception:
            return None
        line = _raising_line(error) if isinstance(error, Exception) else None
        shorter = _without_line(source, line) if line is not None else None
        if shorter is None:
            return source
        source = shorter
    return source


def program(seed):
    """The program of a seed, or None for a seed that gives none."""
    rng = random.Random(seed)
    module = _Module(rng)
    try:
        source = declare_globals(module.text(), module.names)
    except SyntaxError:
        return None
    if rng.random() < 0.9:
        return mend(source)
    return source
