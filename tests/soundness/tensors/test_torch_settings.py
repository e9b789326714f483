"""What operations run under beside their arguments, changed by the program or around it.

Owns: whole programs: settings of torch and numpy that a call changes for a while, locks, versions
and offsets of memory, methods that a class gets later. Does not own single reads
(external_state/test_ways_to_read.py).

PYTEST_DONT_REWRITE: the programs must be what they look like.
"""

import pytest

from tests.fuzz import __main__ as fuzz
from tests.soundness.subprocess_programs import children_ready  # noqa: F401

#: Those that are captured anew in each call, or run eagerly.
NO_HITS = {
    "np_errstate_inside",
    "np_errstate_outside",
    "decimal_inside",
    "anomaly_inside",
    "settled_numpy",
    "leaf_view_no_grad_seen_outside",
    "printoptions_inside",
    # A lock is taken in Python, around what regions compile.
    *("lock_kept", "lock_nonblocking", "condition", "rlock"),
    "flush_denormal_inside",
    "queue_put",
    "version_memo",
}
PROGRAMS = {
    "default_dtype_inside": """
import torch
def f(x):
    torch.set_default_dtype(torch.float64)
    y = torch.ones(2)
    z = torch.tensor([1.5])
    torch.set_default_dtype(torch.float32)
    return x + y.sum(), y.dtype, z, torch.ones(1)
target = f
def steps(f):
    for i in range(3):
        yield attempt(f, torch.ones(2))
""",
    "set_default_tensor_context": """
import torch
class dd:
    def __init__(self, d): self.d = d
    def __enter__(self):
        self.o = torch.get_default_dtype(); torch.set_default_dtype(self.d)
    def __exit__(self, *a): torch.set_default_dtype(self.o)
def f(x):
    with dd(torch.bfloat16):
        y = torch.ones(2) * x
        w = torch.arange(0., 2.)
    return y, w, torch.arange(0., 2.)
target = f
def steps(f):
    for i in range(3):
        yield attempt(f, torch.ones(2))
""",
    "deterministic_inside": """
import torch
def f(x):
    torch.use_deterministic_algorithms(True, warn_only=False)
    try:
        y = torch.empty(3).fill_(1.0)
        e = torch.empty(2)
        z = e.isnan()
    finally:
        torch.use_deterministic_algorithms(False)
    return y, z
target = f
def steps(f):
    for i in range(3):
        yield attempt(f, torch.ones(2))
""",
    "flush_denormal_inside": """
import torch
def f(x):
    torch.set_flush_denormal(True)
    y = x * 1e-39
    torch.set_flush_denormal(False)
    return y, x * 1e-39
target = f
def steps(f):
    for i in range(3):
        yield attempt(f, torch.ones(2))
""",
    "default_device_inside": """
import torch
def f(x):
    with torch.device("meta"):
        y = torch.ones(2)
    return y.device, x + 1, torch.ones(1)
target = f
def steps(f):
    for i in range(3):
        yield attempt(f, torch.ones(2))
""",
    "np_errstate_inside": """
import torch, numpy as np
def f(x):
    with np.errstate(divide="raise"):
        try:
            r = np.float32(float(x.sum())) / np.float32(0)
        except FloatingPointError as e:
            r = str(e)
    return r, x * 2
target = f
def steps(f):
    for i in range(3):
        yield attempt(f, torch.ones(2) * (i + 1))
""",
    "np_errstate_outside": """
import torch, numpy as np
def f(x):
    try:
        r = np.float32(float(x.sum())) / np.float32(0)
    except FloatingPointError as e:
        r = str(e)
    return r, x * 2
target = f
def steps(f):
    for i in range(2):
        yield attempt(f, torch.ones(2) * (i + 1))
    with np.errstate(divide="raise"):
        r = attempt(f, torch.ones(2) * 3)
    yield r
    with np.errstate(divide="ignore"):
        r = attempt(f, torch.ones(2) * 4)
    yield r
    yield attempt(f, torch.ones(2) * 5)
""",
    "printoptions_inside": """
import torch
def f(x):
    torch.set_printoptions(precision=2)
    s = str(x)
    torch.set_printoptions(profile="default")
    return s, str(x)
target = f
def steps(f):
    for i in range(3):
        yield attempt(f, torch.ones(2) * 1.23456 * (i + 1))
""",
    "np_printoptions": """
import torch, numpy as np
def f(x):
    with np.printoptions(precision=2):
        s = str(x.numpy())
    return s, str(x.numpy())
target = f
def steps(f):
    for i in range(3):
        yield attempt(f, torch.ones(2) * 1.23456 * (i + 1))
""",
    "decimal_inside": """
import torch, decimal
def f(x):
    with decimal.localcontext() as c:
        c.prec = 3
        a = decimal.Decimal(1) / 3
    return str(a), str(decimal.Decimal(1) / 3), x * 2
target = f
def steps(f):
    for i in range(3):
        yield attempt(f, torch.ones(2))
""",
    "sdp_kernel_inside": """
import torch
from torch.nn.attention import sdpa_kernel, SDPBackend
def f(x):
    with sdpa_kernel(SDPBackend.MATH):
        a = torch.nn.functional.scaled_dot_product_attention(x, x, x)
    return a, torch.backends.cuda.flash_sdp_enabled()
target = f
def steps(f):
    for i in range(3):
        yield attempt(f, torch.ones(1, 2, 4, 8) * (i + 1))
""",
    "setting_left_by_a_miss": """
import torch
u = torch.zeros(2)
def f(x):
    u.add_(1)
    torch.set_default_dtype(torch.float64)
    try:
        y = torch.ones(2)
        if x.sum() > 2:
            y = y * 2
        if x.sum() > 100:
            raise ValueError("big")
    finally:
        torch.set_default_dtype(torch.float32)
    return y, torch.ones(1), u.clone()
target = f
def steps(f):
    for v in (1., 1., 3., 3., 1., 200., 200., 1., 3.):
        yield attempt(f, torch.full((2,), v))
        yield torch.get_default_dtype(), torch.ones(1).dtype, u._version
""",
    "settings_nested_and_by_argument": """
import torch
def f(x, d, g):
    with torch.set_grad_enabled(g):
        torch.set_default_dtype(d)
        y = torch.ones(2) * x
        torch.use_deterministic_algorithms(True)
        e = torch.empty(2).isnan()
        torch.set_default_dtype(torch.float32)
        z = torch.ones(2)
        torch.use_deterministic_algorithms(False)
    return y, e, z, y.requires_grad
target = f
def steps(f):
    x = torch.ones(2, requires_grad=True)
    for d in (torch.float64, torch.bfloat16, torch.float64, torch.float32):
        for g in (True, False):
            yield attempt(f, x, d, g)
""",
    "settings_from_another_start": """
import torch
def f(x):
    n = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    y = torch.ones(2)
    torch.set_default_dtype(n)
    return y, torch.ones(2)
target = f
def steps(f):
    for d in (torch.float32, torch.bfloat16, torch.float64, torch.float32):
        torch.set_default_dtype(d)
        r = [attempt(f, torch.ones(2)) for _ in range(2)]
        torch.set_default_dtype(torch.float32)
        yield r
""",
    "settings_in_backward": """
import torch
def f(x):
    torch.set_default_dtype(torch.float64)
    y = (x * torch.ones(2)).sum()
    torch.set_default_dtype(torch.float32)
    y.backward()
    return x.grad.clone(), y.dtype
target = f
def steps(f):
    for i in range(3):
        yield attempt(f, torch.full((2,), i + 1.0, requires_grad=True))
""",
    "settings_and_item": """
import torch
def f(x):
    torch.set_default_dtype(torch.float64)
    n = (x * 2).sum().item()
    t = torch.tensor(n)
    torch.set_default_dtype(torch.float32)
    return t, torch.tensor(n)
target = f
def steps(f):
    for i in range(4):
        yield attempt(f, torch.full((2,), float(i)))
""",
    "sdp_kernel_by_priority": """
import torch
from torch.nn.attention import sdpa_kernel, SDPBackend
def f(x):
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION], set_priority=True):
        a = torch.nn.functional.scaled_dot_product_attention(x, x, x)
    return a, torch._C._get_sdp_priority_order()
target = f
def steps(f):
    for i in range(3):
        yield attempt(f, torch.ones(1, 2, 4, 8) * (i + 1))
    before = torch._C._get_sdp_priority_order()
    torch._C._set_sdp_priority_order(before[::-1])
    r = [attempt(f, torch.ones(1, 2, 4, 8)) for _ in range(2)]
    torch._C._set_sdp_priority_order(before)
    yield r
""",
    "matmul_precision_inside": """
import torch
def f(x):
    torch.set_float32_matmul_precision("medium")
    y = x @ x
    torch.set_float32_matmul_precision("highest")
    return y, x @ x
target = f
def steps(f):
    for i in range(3):
        yield attempt(f, torch.randn(64, 64))
""",
    "threads_inside": """
import torch
def f(x):
    n = torch.get_num_threads()
    torch.set_num_threads(2)
    y = x.sum()
    torch.set_num_threads(n)
    return y
target = f
def steps(f):
    for i in range(3):
        yield attempt(f, torch.randn(1000))
""",
    "anomaly_inside": """
import torch
def f(x):
    with torch.autograd.detect_anomaly(check_nan=True):
        y = (x * 0).sqrt().sum()
        try:
            y.backward()
        except RuntimeError as e:
            return "nan", str(e)[:40]
    return x.grad
target = f
def steps(f):
    for i in range(3):
        yield attempt(f, torch.ones(2, requires_grad=True))
""",
    "inference_cache_enabled_autocast": """
import torch
lin = torch.nn.Linear(2, 2)
def f(x):
    with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False):
        y = lin(x)
    with torch.autocast("cpu", dtype=torch.float16):
        z = lin(x)
    return y.dtype, z.dtype, y.sum().float() + z.sum().float()
target = f
def steps(f):
    for i in range(3):
        yield attempt(f, torch.ones(2))
""",
    "lock_nonblocking": """
import torch, threading
L = threading.Lock()
def f(x):
    if L.acquire(blocking=False):
        try:
            return x * 2
        finally:
            L.release()
    return x
target = f
def steps(f):
    for i in range(2):
        yield attempt(f, torch.ones(2))
    L.acquire()
    r = attempt(f, torch.ones(2))
    L.release()
    yield r
    yield attempt(f, torch.ones(2))
""",
    "lock_kept": """
import torch, threading
L = threading.Lock()
def f(x):
    L.acquire()
    return x * 2
target = f
def steps(f):
    for i in range(3):
        yield attempt(f, torch.ones(2))
        yield L.locked()
        L.release()
""",
    "queue_put": """
import torch, queue
Q = queue.Queue()
def f(x):
    Q.put(int(x.sum()))
    return x * 2, Q.qsize()
target = f
def steps(f):
    for i in range(3):
        yield attempt(f, torch.ones(2) * i)
        yield Q.qsize(), list(Q.queue)
""",
    "condition": """
import torch, threading
C = threading.Condition()
state = {"n": 0}
def f(x):
    with C:
        state["n"] += 1
        C.notify_all()
    return x * state["n"]
target = f
def steps(f):
    for i in range(4):
        yield attempt(f, torch.ones(2) * i)
""",
    "rlock": """
import torch, threading
C = threading.RLock()
state = {"n": 0}
def f(x):
    with C:
        with C:
            state["n"] += 1
    return x * state["n"]
target = f
def steps(f):
    for i in range(4):
        yield attempt(f, torch.ones(2) * i)
""",
    "version_memo": """
import torch
w = torch.nn.Parameter(torch.ones(3))
cache = {}
def f(x):
    key = w._version
    if key not in cache:
        cache.clear()
        cache[key] = (w * 2).detach()
    return x * cache[key]
target = f
def steps(f):
    for i in range(7):
        yield attempt(f, torch.ones(3))
        if i % 2:
            with torch.no_grad():
                w.add_(1)
""",
    "version_of_view_after_write": """
import torch
u = torch.zeros(4)
def f(x):
    v = u[1:]
    v.add_(x.sum())
    return v._version, u._version, v.storage_offset(), v._is_view()
target = f
def steps(f):
    global u
    for i in range(4):
        yield attempt(f, torch.ones(3))
        if i == 1:
            u.add_(1)
    u = torch.zeros(9)[2:6]
    for i in range(3):
        yield attempt(f, torch.ones(3))
""",
    "offset_of_args": """
import torch
base = torch.arange(10.)
def f(x):
    if x.storage_offset() > 2:
        return x * 2
    return x + 1, x.storage_offset()
target = f
def steps(f):
    for i in range(7):
        yield attempt(f, base[i:i + 3])
""",
    "in_list_of_objects": """
import torch
class P:
    def __init__(self, n): self.n = n
    def __eq__(self, o): return isinstance(o, P) and self.n == o.n
a, b = P(1), P(2)
items = [a, b]
probe = P(2)
def f(x):
    return (probe in items), (probe in (a, b)), ([probe] in [[b]]), x * 2
target = f
def steps(f):
    for i in range(2):
        yield attempt(f, torch.ones(2))
    b.n = 3
    yield attempt(f, torch.ones(2))
    P.__eq__ = lambda s, o: False
    yield attempt(f, torch.ones(2))
    P.__eq__ = lambda s, o: True
    yield attempt(f, torch.ones(2))
""",
    "list_in_list": """
import torch
want = [1, 2]
def f(x):
    return (want in [[1, 2], [3]]), x * 2
target = f
def steps(f):
    for i in range(2):
        yield attempt(f, torch.ones(2))
    want.append(3)
    yield attempt(f, torch.ones(2))
""",
    "class_gains_iter": """
import torch
class P:
    pass
p = P()
def f(x):
    try:
        return x * sum(p)
    except TypeError as e:
        return str(e)
target = f
def steps(f):
    for i in range(2):
        yield attempt(f, torch.ones(2))
    P.__iter__ = lambda s: iter([1, 2])
    yield attempt(f, torch.ones(2))
""",
    "made_object_gains_bool": """
import torch
class P:
    pass
def f(x):
    return x * 2 if P() else x, not P(), P() == 3, hash(P()) == 4
target = f
def steps(f):
    for i in range(2):
        yield attempt(f, torch.ones(2))
    P.__bool__ = lambda s: False
    yield attempt(f, torch.ones(2))
    P.__hash__ = lambda s: 4
    yield attempt(f, torch.ones(2))
""",
    "meta_gains": """
import torch
class Meta(type): pass
class P(metaclass=Meta):
    pass
def f(x):
    try:
        n = len(P)
    except TypeError as e:
        n = str(e)
    return x * 2 if P else x, n, 3 in [P]
target = f
def steps(f):
    for i in range(2):
        yield attempt(f, torch.ones(2))
    Meta.__len__ = lambda s: 0
    yield attempt(f, torch.ones(2))
    Meta.__eq__ = lambda s, o: True
    yield attempt(f, torch.ones(2))
""",
    "kwargs_arg_object": """
import torch
class P:
    def __init__(self): self.v = 1
def f(x, p):
    return x * (2 if p else 3)
target = f
def steps(f):
    p = P()
    for i in range(2):
        yield attempt(f, torch.ones(2), p)
    P.__bool__ = lambda s: False
    yield attempt(f, torch.ones(2), P())
    yield attempt(f, torch.ones(2), p)
""",
    "format_of_object": """
import torch
class P:
    pass
p = P()
def f(x):
    return f"{p!s:.12}", "%.9s" % p, x * 2
target = f
def steps(f):
    for i in range(2):
        yield attempt(f, torch.ones(2))
    P.__str__ = lambda s: "new"
    yield attempt(f, torch.ones(2))
    P.__format__ = lambda s, q: "fmt"
    yield attempt(f, torch.ones(2))
""",
    "sorted_objects": """
import torch
class P:
    def __init__(self, n): self.n = n
    def __lt__(self, o): return self.n < o.n
ps = [P(2), P(1)]
def f(x):
    return sorted(ps)[0].n, max(ps, key=lambda q: q.n).n, x * 2
target = f
def steps(f):
    for i in range(2):
        yield attempt(f, torch.ones(2))
    P.__lt__ = lambda s, o: s.n > o.n
    yield attempt(f, torch.ones(2))
    ps[0].n = 0
    yield attempt(f, torch.ones(2))
""",
    "data_ptr": """
import torch
def f(x):
    t = torch.arange(4)
    k = t.data_ptr() % 8
    return x * (k == 0)
target = f
def steps(f):
    for _ in range(4):
        yield attempt(f, torch.ones(2))
""",
    "settled_stored_and_changed": """
import torch
class M:
    pass
m = M()
def f(x):
    t = torch.arange(3)
    m.t = t
    if t.sum() > 3:
        return x * 3
    return x
target = f
def steps(f):
    for i in range(3):
        yield attempt(f, torch.ones(2))
        m.t.add_(i + 1)
""",
    "settled_then_written_then_read": """
import torch
def f(x):
    t = torch.arange(3)
    v = t[1:]
    if t.sum() > 5:
        return x
    v.add_(x.long().sum())
    if t.sum() > 5:
        return x * 2
    return x * 3
target = f
def steps(f):
    for i in range(4):
        yield attempt(f, torch.full((2,), float(i)))
""",
    "settled_numpy": """
import torch, numpy as np
def f(x):
    t = torch.arange(3)
    a = t.numpy()
    a[0] = int(x.sum())
    if t.sum() > 4:
        return x * 2
    return x
target = f
def steps(f):
    for i in range(4):
        yield attempt(f, torch.full((2,), float(i)))
""",
    "leaf_view_no_grad_seen_outside": """
import torch
w = torch.nn.Parameter(torch.ones(4, 2))
kept = []
def f(x):
    with torch.no_grad():
        v = w[:2]
        kept.append(v)
        v2 = v * 2
        v.add_(1)
    return v2 + x, v.is_leaf, v.requires_grad, v._version
target = f
def steps(f):
    for i in range(4):
        yield attempt(f, torch.ones(2))
        with torch.no_grad():
            kept[-1].mul_(0.5)
""",
    "leaf_view_detach_requires": """
import torch
w = torch.nn.Parameter(torch.ones(4, 2))
def f(x):
    with torch.no_grad():
        v = w[:2]
    v.requires_grad_()
    y = (v * x).sum()
    y.backward()
    return y.detach(), v.grad, w.grad
target = f
def steps(f):
    for i in range(4):
        yield attempt(f, torch.ones(2))
        w.grad = None
""",
    "dual_passed_in": """
import torch
import torch.autograd.forward_ad as fwAD
def f(x):
    y = x.sin()
    return fwAD.unpack_dual(y).tangent if fwAD._current_level >= 0 else y
target = f
def steps(f):
    for i in range(3):
        yield attempt(f, torch.full((2,), float(i)))
        with fwAD.dual_level():
            d = fwAD.make_dual(torch.ones(2), torch.full((2,), 2.0 + i))
            r = attempt(f, d)
            r = r.clone() if isinstance(r, torch.Tensor) else r
        yield r
""",
    "undo_versions": """
import torch
u = torch.zeros(3)
def f(x):
    u.add_(1)
    if x.sum() > 2:
        u.mul_(2)
        return u._version, u * x
    u.sub_(1)
    return u._version, x
target = f
def steps(f):
    for n in range(6):
        yield attempt(f, torch.ones(3) * (n % 3))
        yield u._version
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_does_as_eager(name):
    report = fuzz.report_on(PROGRAMS[name], 0)
    assert report.finding is None
    assert bool(report.hits) is (name not in NO_HITS), report.reasons
