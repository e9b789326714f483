"""Objects that classes hold: in metaclasses, in static and class methods, as descriptors.

Owns reads and writes of what is found there, when others change it between calls and when the call
itself does; and dicts that several objects of a call have as their own.  Does not own values that
classes hold themselves (tests/soundness/classes/test_counters_in_classes.py,
tests/soundness/external_state/test_ways_to_read.py).
"""

from __future__ import annotations

import functools
import types

import pytest
import torch
from torch import nn

import magpy
from tests.soundness.worlds import assert_served, attempt, run


class Counter:
    def __init__(self):
        self.n, self.seen = 0, []

    def __call__(self, *args):
        self.n += 1
        self.seen.append(len(args))
        return self.n


def singleton():
    class Singleton(type):
        instances: dict = {}

        def __call__(cls):
            if cls not in cls.instances:
                cls.instances[cls] = super().__call__()
            return cls.instances[cls]

    class Config(metaclass=Singleton):
        def __init__(self):
            self.scale, self.calls = 1.0, 0

    def use():
        config = Config()
        config.calls += 1
        return config.scale, config.calls

    return use, lambda: setattr(Config(), "scale", 7.0)


def registry():
    class Meta(type):
        table: dict = {"A": types.SimpleNamespace(k=1)}
        log: list = []

        @property
        def first(cls):
            return cls.table["A"].k

        def __getattr__(cls, name):
            return cls.table[name].k

        def __iter__(cls):
            return iter(cls.table)

    class Base(metaclass=Meta):
        pass

    def use():
        Base.log.append(1)
        return Base.table["A"].k, Base.first, Base.A, list(Base), len(Base.log)

    return use, lambda: setattr(Meta.table["A"], "k", 5)


def static(make, change):
    def parts():
        held = make()

        class Net(nn.Module):
            act = staticmethod(held)

            def forward(self, t):
                return self.act(t)

        net = Net()
        return lambda: str(net(torch.ones(1))), lambda: change(held)

    return parts


def class_method():
    counter = Counter()
    cls = type("C", (), {"act": classmethod(counter)})
    return lambda: (cls.act(), cls().act(1), counter.n), lambda: setattr(counter, "n", 100)


def found_by_super():
    held = [1]

    class A:
        held_by = staticmethod(held)

    class B(A):
        def get(self):
            return super().held_by

    return lambda: (B().get().append(2), len(B().get())), held.clear


def bound_in_a_static_method():
    kept: list = []
    cls = type("C", (), {"keep": staticmethod(kept.append)})
    return lambda: (cls.keep(1), len(kept)), kept.clear


def descriptors(make):
    def parts():
        d = make()
        d.v, d.log = 1.0, []
        o = type("O", (), {"a": d})()
        return lambda: (o.a, setattr(o, "a", o.a + 1), o.a, d.log), lambda: setattr(d, "v", 7.0)

    return parts


def fetch(self, o, cls=None):
    return self.v


def put(self, o, value):
    self.v = value
    self.log.append(value)


def logged(f):
    @functools.wraps(f)
    def wrapper(*args):
        return f(*args)

    return wrapper


Named = type("Named", (), {"__get__": fetch, "__set__": put})
Lambda = type(
    "Lambda", (), {"__get__": lambda self, o, cls=None: self.v, "__set__": lambda *a: put(*a)}
)
Wrapped = type("Wrapped", (), {"__get__": logged(fetch), "__set__": logged(put)})


class Kept:
    """A descriptor that keeps one number for all objects."""

    n = 0

    def __get__(self, o, cls=None):
        return self.n

    def __set__(self, o, value):
        self.n = value

    def __delete__(self, o):
        self.n += 10


def deleted():
    d = Kept()
    o = type("O", (), {"a": d})()

    def use():
        before = o.a
        del o.a
        return before, o.a

    return use, lambda: setattr(d, "n", 3)


def of_a_metaclass():
    d = Kept()
    cls = type("Meta", (type,), {"a": d})("C", (), {})

    def use():
        cls.a = cls.a + 1
        return cls.a

    return use, lambda: setattr(d, "n", 50)


def shared(make):
    def parts():
        held = {"n": 0}

        def use():
            o = make()
            o.__dict__ = held
            o.n += 1
            return o.n, getattr(o, "other", None), held["n"]

        return use, lambda: held.update(n=10, other=3)

    return parts


PROGRAMS = {
    "singleton": singleton,
    "registry": registry,
    "static callable": static(Counter, lambda c: setattr(c, "n", 50)),
    "static partial": static(
        lambda: functools.partial(lambda t, k: t * k, k=1), lambda p: p.keywords.update(k=3)
    ),
    "static module": static(lambda: nn.Dropout(0.5), lambda m: m.eval()),
    "static dict": static(lambda: {"k": 1}.get, lambda get: get.__self__.update(k=2)),
    "class method": class_method,
    "super": found_by_super,
    "bound": bound_in_a_static_method,
    "descriptor by another name": descriptors(Named),
    "descriptor of lambdas": descriptors(Lambda),
    "decorated descriptor": descriptors(Wrapped),
    "deletion": deleted,
    "descriptor of a metaclass": of_a_metaclass,
    "shared by objects": shared(type("B", (), {})),
    "shared by modules": shared(nn.Module),
    "shared by functions": shared(lambda: lambda: 0),
    "shared by exceptions": shared(Exception),
    "shared by lists": shared(type("L", (list,), {})),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_found_there_is_from_outside(name):
    def found(compile):
        use, change = PROGRAMS[name]()
        f = compile(lambda t: (t * 1, use()))
        for i in range(6):
            if i == 3:
                change()
            yield attempt(f, torch.ones(2))

    run(found, None)


def test_a_singleton_is_served():
    def found(compile):
        use, _ = singleton()
        use()
        f = compile(lambda t: t * use()[0])
        for _ in range(5):
            yield f(torch.ones(2))

    assert_served(found, captures=2)


class ItsOwn(dict):
    def __init__(self, **items):
        super().__init__(**items)
        self.__dict__ = self


class Plain:
    pass


def test_objects_of_a_call_that_share_a_dict_share_it():
    held = {"n": 0}

    def make(t):
        own, borg, first, second = ItsOwn(n=1, t=t * 2), Plain(), Plain(), Plain()
        borg.__dict__ = held
        second.__dict__ = first.__dict__
        first.n = 1
        return own, borg, first, second, vars(first), t

    f = magpy.compile(make, backend="eager")
    for _ in range(3):
        own, borg, first, second, attributes, _ = f(torch.ones(1))
        assert own.__dict__ is own and borg.__dict__ is held
        assert first.__dict__ is second.__dict__ is attributes
        own["n"] = 2
        assert own.n == 2 and torch.equal(own.t, torch.ones(1) * 2)
    assert magpy.stats(f).hits == 2


class Doubled(torch.Tensor):
    def sum(self, *args):
        return super().sum(*args) * 2

    def t(self):
        return torch.Tensor.t(self) + 1

    def __add__(self, other):
        return super().__add__(other) * 3

    def __float__(self):
        LOG.append("float")
        return super().__float__() * 2


class DoubledParameter(nn.Parameter):
    def sum(self, *args):
        return super().sum(*args) * 2


LOG: list[str] = []


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_methods_that_a_subclass_overrides_are_called_once(backend):
    def overridden(compile):
        f = compile(lambda t, p: (t.sum(), t.t(), t + 1, p.sum(), t * float(t.mean())))
        for i in range(4):
            LOG.clear()
            t = torch.full((2, 2), 1.0 + i).as_subclass(Doubled)
            yield f(t, DoubledParameter(torch.ones(2) * i)), list(LOG)

    run(overridden, None, backend)


def test_an_attribute_of_a_tensor_hides_a_method():
    def hidden(compile):
        t = torch.ones(3)
        t.sum = lambda: 0
        f = compile(lambda: (torch.Tensor.sum(t), t.sum()))
        for _ in range(3):
            yield f()

    run(hidden, None)
