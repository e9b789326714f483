"""Objects of C that a call makes and keeps: other calls make others; and what it does to classes.

Owns objects that nothing tells from those that are the same in every call, and changes of a class
that the call also looks at as a dict.  Does not own classes that the call makes
(tests/soundness/classes/test_counters_in_classes.py).
"""

from __future__ import annotations

import functools
import sys
import types

import pytest
import torch

import magpy
from tests.comparison import assert_same


class Base:
    def name(self):
        return "base"


class Modules(types.ModuleType):
    pass


class Derived(Base):
    def name(self):
        return "derived"


def a_cache(x):
    return functools.lru_cache(lambda n: x * n)


def a_decorated_function(x):
    @functools.cache
    def scaled(n):
        return x.sum() * n

    return scaled


def a_super_object(x):
    return super(Derived, Derived())


def a_super_object_of_a_class(x):
    return super(Derived, Derived)


def a_module(x):
    m = types.ModuleType("made")
    m.held = x * 2
    return m


def a_module_of_a_class(x):
    m = Modules("made")
    m.held = x.sum().item()
    return m


def a_generator(x):
    return torch.Generator()


#: What makes an object, how it is used, and why calls that keep it run eagerly.
OBJECTS = {
    a_cache: (lambda o: (o(2), o(2), o.cache_info().hits), "_lru_cache_wrapper"),
    a_decorated_function: (lambda o: (o(2), o.cache_info().misses), "_lru_cache_wrapper"),
    a_super_object: (lambda o: (type(o).__name__, o.name()), None),
    a_super_object_of_a_class: (lambda o: (type(o).__name__, o.name(None)), None),
    a_module: (lambda o: o.held, "a module is made"),
    a_module_of_a_class: (lambda o: o.held, "a module is made"),
    a_generator: (lambda o: torch.rand(1, generator=o), None),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("make", OBJECTS, ids=lambda f: f.__name__)
def test_each_call_makes_its_own(make, keep):
    use, refused = OBJECTS[make]
    place = types.SimpleNamespace()

    def f(x):
        made = make(x)
        if keep:
            place.held = made
            return x + 1
        return made

    def results(c):
        found = [c(torch.ones(1) * i) for i in (1, 1, 2, 3)]
        return [use(place.held if keep else v) for v in found]

    c = magpy.compile(f, backend="eager")
    assert_same(results(c), results(f))
    made = [c(torch.ones(1)) and place.held if keep else c(torch.ones(1)) for _ in range(3)]
    assert len({id(v) for v in made}) == 3
    if refused is None:
        assert magpy.stats(c).hits, magpy.stats(c).reasons
    else:
        assert refused in magpy.stats(c).reasons[0]


def test_a_module_that_the_call_imports_is_the_one(tmp_path, monkeypatch):
    (tmp_path / "imported_by_a_call.py").write_text("held = 3\n")
    monkeypatch.syspath_prepend(tmp_path)

    def f(x):
        import imported_by_a_call

        return x * imported_by_a_call.held

    c = magpy.compile(f, backend="eager")
    try:
        for _ in range(3):
            assert_same(c(torch.ones(2)), torch.full((2,), 3.0))
    finally:
        sys.modules.pop("imported_by_a_call", None)
    assert magpy.stats(c).hits


LOOKS = {
    "by_an_instance": "getattr(o, 'm', 0)",
    "by_the_class": "getattr(A, 'm', 0)",
    "by_a_subclass": "getattr(B(), 'm', 0)",
    "hasattr": "hasattr(o, 'm')",
    "vars": "vars(A).get('m', 0)",
    "keys": "[k for k in A.__dict__ if k[0] != '_']",
    "dir": "'m' in dir(A)",
    "method": "o.q()",
}
CHANGES = {
    "toggled": "if {c}: del A.m\n    else: A.m = 1",
    "counted": "A.m = vars(A).get('m', 0) + 1 if {c} else 1",
    "by_functions": "(delattr if {c} else lambda a, b: setattr(a, b, 2))(A, 'm')",
    "twice": "if {c}: del A.m; A.m = 3\n    else: A.m = 1; del A.m; A.m = 2",
}
CONDITIONS = ["'m' in vars(A)", "'m' in A.__dict__", "hasattr(A, 'm')"]


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_a_class_is_changed_that_is_looked_at_as_a_dict(look, change):
    def calls(condition, outside, compile):
        scope = {}
        exec(
            "class A:\n    def q(self): return getattr(self, 'm', 5)\n"
            "class B(A): pass\no = A()\n"
            f"def f(x):\n    a = {look}\n    {change.format(c=condition)}\n    return a, {look}, x",
            scope,
        )
        c, cls = compile(scope["f"]), scope["A"]
        seen = []
        for i in range(8):
            if outside and i in (3, 6):
                if "m" in vars(cls):
                    del cls.m
                else:
                    cls.m = 9
            seen.append((c(torch.ones(1)), vars(cls).get("m"), getattr(scope["o"], "m", None)))
        return seen

    for condition in CONDITIONS:
        for outside in (False, True):
            eager = calls(condition, outside, lambda f: f)
            compiled = calls(condition, outside, lambda f: magpy.compile(f, backend="eager"))
            assert_same(compiled, eager)


@pytest.mark.filterwarnings("ignore")
def test_a_class_is_assigned_to_a_tensor_from_outside():
    class Sub(torch.Tensor):
        pass

    def calls(compile):
        weight = torch.ones(2)

        def f(x):
            weight.__class__ = torch.Tensor if type(weight) is Sub else Sub
            return x, type(weight).__name__

        c = compile(f)
        return [(c(torch.ones(2)), type(weight).__name__) for _ in range(5)]

    assert_same(calls(lambda f: magpy.compile(f, backend="eager")), calls(lambda f: f))
