"""Numbers that classes hold: counters, identifiers, settings, and hooks that are counted there.

Owns programs that read and change numbers of classes in compiled calls and between them.  Does not
own numbers of instances (tests/soundness/effects/test_order_of_effects.py,
tests/soundness/numbers/test_varying_sizes.py).
"""

from __future__ import annotations

import subprocess
import sys

import torch
from torch import nn

from tests.soundness.worlds import assert_served, case, check_all

CASES = []


def ones():
    return torch.ones(2)


def counted(compile):
    class Model(nn.Module):
        calls = 0

        def forward(self, t):
            Model.calls += 1
            return t * 2 if Model.calls % 4 == 0 else t * Model.calls

    m = compile(Model())
    for _ in range(8):
        yield m(ones()), Model.calls


def identified(compile):
    class Node:
        number = 0

        def __init__(self, value):
            self.value, self.own = value, Node.number
            Node.number += 1

        @classmethod
        def restart(cls):
            cls.number = 0

    nodes = compile(lambda t: [Node(t * i) for i in range(3)])
    for i in range(6):
        if i == 4:
            Node.restart()
        yield [(n.value, n.own) for n in nodes(ones())], Node.number


def counted_by_a_metaclass(compile):
    class Meta(type):
        made = 0

        def __call__(cls, *args):
            Meta.made += 1
            return super().__call__(*args)

    class Box(metaclass=Meta):
        def __init__(self, value):
            self.value = value

    f = compile(lambda t: Box(t * 2))
    for _ in range(4):
        yield f(ones()).value, Meta.made


def set_by_others(compile):
    class Settings:
        ratio, verbose = 0.5, False

    class Model(nn.Module):
        slope = 0.1

        def forward(self, t):
            return t * Settings.ratio + self.slope, Settings.verbose

    m = compile(Model())
    for i in range(8):
        Settings.ratio, Model.slope = 0.25 * i, 3.0 * i
        yield m(ones())


SERVED = [counted, identified, counted_by_a_metaclass, set_by_others]
for program in SERVED:
    case(CASES)(program)


@case(CASES)
def numbers_of_a_base(compile):
    class Base:
        n, total = 0, 0.0

    class Derived(Base):
        pass

    def f(t):
        Base.n += 1
        Derived.n += 2
        Base.total += 0.5
        return t * Base.n + Derived.n, Base.total, Derived.total

    f = compile(f)
    for i in range(10):
        if i == 5:
            Base.n = 100
        if i == 6:
            del Derived.n
        if i == 7:
            Derived.n = 3
        if i == 8:
            Base.n = 1.5
        yield f(ones()), Base.n, vars(Derived).get("n"), Base.total


@case(CASES)
def numbers_that_change_their_place_and_type(compile):
    class Settings:
        ratio = 0.5

    class Own(Settings):
        pass

    class Model(nn.Module):
        slope = 0.1

        def forward(self, t):
            return t * self.slope + Own.ratio + Settings.ratio

    plain = Model()
    m = compile(plain)

    def changes():
        Settings.ratio = 0.7
        yield
        Settings.ratio = 0.8
        yield
        Own.ratio = 7.0
        yield
        Settings.ratio = 3.0
        yield
        plain.slope = 5.0
        yield
        del plain.slope
        yield
        Settings.ratio = 2
        yield
        Settings.ratio = True
        yield
        del Own.ratio
        yield
        Model.slope = 1 << 60
        yield

    yield m(ones())
    for _ in changes():
        yield m(ones()), m(ones())


@case(CASES)
def stored_and_read_again(compile):
    class Settings:
        a, b = 1.0, 2

    def f(t):
        Settings.a = Settings.b * 2.0
        Settings.b += 1
        return t * Settings.a, Settings.b

    f = compile(f)
    for _ in range(5):
        yield f(ones()), Settings.a, Settings.b


@case(CASES)
def a_class_hides_a_number_for_a_while(compile):
    class Base:
        n = 1

    class Derived(Base):
        n = 5

    def f(t):
        Base.n += 1
        del Derived.n
        seen = Derived.n
        Derived.n = seen * 10
        return t * seen

    f = compile(f)
    for _ in range(4):
        yield f(ones()), Base.n, Derived.n


@case(CASES, refused="register_hook is called")
def hooks_of_a_modules_gradients(compile):
    m, seen = nn.Sequential(nn.Linear(2, 2), nn.ReLU()), []
    m[0].register_full_backward_hook(lambda m, given, out: seen.append(out[0].clone()))
    m = compile(m)
    for _ in range(3):
        out = m(ones().unsqueeze(0).requires_grad_())
        out.sum().backward()
        yield out, list(seen)


@case(CASES, refused="register_hook is called")
def numbers_of_hooks(compile):
    def f(t):
        return t.register_hook(print)

    f = compile(f)
    start = torch.utils.hooks.RemovableHandle.next_id
    for size in (2, 3, 4):
        yield f(torch.ones(size, requires_grad=True)).id - start


test_classes = check_all(CASES)


def test_numbers_of_classes_are_inputs():
    for program in SERVED:
        assert_served(program, captures=2)


SHARED_NEW = """
import torch, magpy

class State:
    def __init__(self):
        self.n = 2

S = State()

class Kept(int):
    def __new__(cls):
        return int.__new__(cls, S.n)

def f(x):
    S.n += 0
    object.__new__(State)
    return x * 2, str(Kept())

x, c = torch.ones(2), magpy.compile(f, backend="eager")
for S.n in (2, 2, 5, 5, 7):
    assert c(x)[1] == str(S.n), (c(x)[1], S.n)
"""


def test_what_one_class_does_to_make_an_object_says_nothing_about_another():
    # A process of its own: what is known of C functions is kept for as long as it runs.
    done = subprocess.run([sys.executable, "-c", SHARED_NEW], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
