"""A count of steps that C code looks up: milestones, warm-up windows, torch's schedulers."""

from __future__ import annotations

import pytest

from tests.fuzz import worlds

PRELUDE = """
import bisect, collections
import torch
from torch import nn
schedulers = torch.optim.lr_scheduler
class Sub(dict): pass
class Listed(list): pass
n = 0
m = collections.Counter([2, 5])
w = range(3, 7)
d, s = Sub({4: 1}), Listed([3, 8])
ms, t = [3, 6], (2, 4)
p = nn.Parameter(torch.ones(2))
"""
LOOKS = {
    "counter": ("n in m", "m.update([18])"),
    "range": ("n in w", "w = range(15, 17)"),
    "dict": ("n in d", "d[16] = 1"),
    "list": ("n not in s", "s.append(17)"),
    "right": ("bisect.bisect_right(ms, n)", "ms.append(16)"),
    "left": ("bisect.bisect_left(t, n)", "t = (2, 4, 17)"),
    "named": ("bisect.bisect(ms, n, lo=1)", "ms[1] = 15"),
}
SCHEDULERS = {
    "lbfgs": ("LBFGS([p], 0.1, 2)", "schedulers.StepLR(o, 50)"),
    "multi-step": ("SGD([p], 0.1)", "schedulers.MultiStepLR(o, [5, 9])"),
    "sequential": (
        "AdamW([p], 0.1)",
        "schedulers.SequentialLR("
        "o, [schedulers.ConstantLR(o, 0.1, 3), schedulers.ExponentialLR(o, 0.9)], [4])",
    ),
}


@pytest.mark.parametrize("name", LOOKS)
def test_the_answer_counts(name):
    look, change = LOOKS[name]
    report = worlds.run(f"""{PRELUDE}
def f(x):
    global n
    n += 1
    return x * (1 + ({look}))
target = f
def steps(f):
    global n, w, t
    for i in range(12):
        yield attempt(f, torch.ones(2))
    {change}
    for i in range(8):
        yield attempt(f, torch.ones(2))
    n = 1
    for i in range(4):
        yield attempt(f, torch.ones(2))
""")
    assert report.finding is None
    assert report.captures <= 9, report.reasons
    assert report.hits >= 14


COUNTS = {
    "setdefault": "d.setdefault('n', 0)\n    d['n'] += 1",
    "setdefault used": "k = d.setdefault('n', 0)\n    d['n'] = k + 1",
    "in": "if 'n' not in d:\n        d['n'] = 0\n    d['n'] += 1",
    "in and used": "d['n'] = d['n'] + 1 if 'n' in d else 0",
    "module": "module.n += 1\n    d['n'] = module.n",
}


@pytest.mark.parametrize("name", COUNTS)
def test_whether_there_is_a_count_is_asked(name):
    report = worlds.run(f"""{PRELUDE}
import types
module = types.ModuleType("module")
module.n = 0
d = dict()
def f(x):
    {COUNTS[name]}
    return x * d['n']
target = f
def steps(f):
    for i in range(8):
        yield attempt(f, torch.ones(2))
    d['n'] = module.n = 3.5
    for i in range(3):
        yield attempt(f, torch.ones(2))
    d['n'] = module.n = None
    yield attempt(f, torch.ones(2))
    d['n'] = 40
    del module.n
    yield attempt(f, torch.ones(2))
    module.n = 2
    d.clear()
    for i in range(3):
        yield attempt(f, torch.ones(2))
""")
    assert report.finding is None
    assert report.hits >= 8, report.reasons


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_training_step_with_a_scheduler(name):
    optimizer, scheduler = SCHEDULERS[name]
    report = worlds.run(f"""{PRELUDE}
o = torch.optim.{optimizer}
sched = {scheduler}
def f(x):
    def closure():
        o.zero_grad()
        loss = ((p - x) ** 2).sum()
        loss.backward()
        return loss
    o.step(closure)
    sched.step()
    return p.sum().detach(), sched.get_last_lr()
target = f
def steps(f):
    for i in range(24):
        yield attempt(f, torch.ones(2) * i)
""")
    assert report.finding is None
    assert report.captures <= 8, report.reasons
    if name == "lbfgs":  # its search is Python's (tests/regions/test_closures_of_optimizers.py)
        assert all("LBFGS.step goes by" in reason for reason in report.reasons)
    else:
        assert report.hits >= 14
