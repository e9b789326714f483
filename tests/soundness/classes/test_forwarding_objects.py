"""Objects of the call that show what others have: methods, dicts of modules, descriptors."""

from __future__ import annotations

import pytest

from tests.fuzz import worlds

PRELUDE = r"""
import types
import torch

class Holder:
    k = 0
    __slots__ = ("a", "b", "__dict__", "__weakref__")
    def work(self, a=1):
        "text"
    work.scale = 1
    @classmethod
    def made(cls):
        pass
    def plain(self):
        return self.k

def function(self):
    pass

h = Holder()
h.a, h.b = [1.0], 2
module = types.ModuleType("module")
module.k, module.net = 1, lambda x: x

class Lazy(types.ModuleType):
    def __getattr__(self, name):
        self.__dict__[name] = v = len(name)
        return v
    def get(self):
        return self.__dict__["k"]

lazy = Lazy("lazy")
lazy.k = 1
"""

STEPS = r"""
target = f
def steps(f):
    yield attempt(f, torch.ones(2))
    yield attempt(f, torch.ones(2))
    module.k = lazy.k = h.k = function.k = 3
    h.b = 5
    h.a.append(2.0)
    Holder.work.scale = 4
    Holder.work.__name__ = "other"
    Holder.work.__defaults__ = (7,)
    Holder.plain.is_hook = True
    Holder.__dict__["made"].__func__.z = 4
    yield attempt(f, torch.ones(2))
    yield attempt(f, torch.ones(2))
    module.net = lambda x: x * 2
    module.new = 1
    yield attempt(f, torch.ones(2))
    del module.new
    Holder.work.scale = 1
    Holder.__name__ = "Z"
    yield attempt(f, torch.ones(2))
    yield attempt(f, torch.ones(2))
"""

USES = [
    "x * module.__dict__['k']",
    "x * vars(module)['k']",
    "module.__dict__['net'](x)",
    "x * module.__dict__.get('k')",
    "x * ('new' in vars(module))",
    "x * len(dict(vars(module)))",
    "x * len(dir(module))",
    "x * getattr(module, '__dict__')['k']",
    "x * object.__getattribute__(module, '__dict__')['k']",
    "x * sum(1 for _ in module.__dict__)",
    "[vars(module).update(k=vars(module)['k'] + 1), x * module.k][1]",
    "[vars(module).__setitem__('j', 3), x * module.j][1]",
    "x * lazy.get() + lazy.other",
    "x * h.work.scale",
    "x * getattr(h.work, 'scale', -1)",
    "x * hasattr(h.plain, 'is_hook')",
    "(x * 2, h.work.__name__, h.work.__doc__, h.work.__defaults__)",
    "x * getattr(h.made, 'z', 1)",
    "x * getattr(types.MethodType(function, h), 'k', 1)",
    "[h.work.__dict__.update(n=h.work.__dict__.get('n', 0) + 1), x * h.work.n][1]",
    "x * sum(Holder.a.__get__(h))",
    "[Holder.a.__get__(h).append(1.0), x * len(h.a)][1]",
    "[Holder.b.__set__(h, Holder.b.__get__(h) + 1), x * h.b][1]",
    "x * types.MemberDescriptorType.__get__(Holder.b, h)",
    "x * Holder.__dict__['__dict__'].__get__(h).get('k', 0)",
    "(x * 2, type.__dict__['__name__'].__get__(Holder))",
    "x * Holder.plain.__get__(h)()",
]


@pytest.mark.parametrize("use", USES)
def test_what_another_object_has_is_read_and_written(use):
    report = worlds.run(f"{PRELUDE}\ndef f(x):\n    return {use}\n{STEPS}")
    assert report.finding is None
    assert report.captures or "dir is called" in str(report.reasons), report.reasons


def test_a_proxy_is_made():
    source = f"{PRELUDE}\nimport weakref\ndef f(x):\n    return x * weakref.proxy(h).k\n{STEPS}"
    report = worlds.run(source)
    assert report.finding is None
    assert any("proxy" in r for r in report.reasons)
