"""What a call itself puts into an object, a function or a cell, and then uses."""

from __future__ import annotations

import pytest
import torch

import magpy


class _Thing:
    pass


def _step_from(n):
    def step(q=0):
        nonlocal n
        n += 1
        return q * n

    return step


def _scaled(q, *, z=1):
    if isinstance(z, list):
        z.append(1)
        return q * len(z)
    return q * z


def _added(q, *, z=1):
    return q + 5


class World:
    """An object, and two functions, of which programs replace parts."""

    def __init__(self):
        self.o = _Thing()
        self.o.n = 0
        self.step = _step_from(0)
        self.scaled = type(_scaled)(_scaled.__code__, globals(), "scaled")
        self.scaled.__kwdefaults__ = {"z": 1}

    @property
    def cell(self):
        return self.step.__closure__[0]

    def seen(self):
        same_code = self.scaled.__code__ is _scaled.__code__
        parts = vars(self.o), self.step.__defaults__, self.cell.cell_contents
        return str((*parts, self.scaled.__kwdefaults__, same_code))


def dict_then_read(w, p, k):
    w.o.__dict__ = {"n": k}
    return w.o.n


def dict_then_changed_inside(w, p, k):
    w.o.__dict__ = {"n": [k]}
    w.o.n.append(k)
    return w.o.n


def dict_then_stored(w, p, k):
    w.o.__dict__ = {"n": k}
    w.o.m = p
    return w.o.__dict__


def dict_then_asked(w, p, k):
    w.o.__dict__ = {"n": k}
    return vars(w.o), hasattr(w.o, "x"), getattr(w.o, "n", 9)


def dict_then_deleted(w, p, k):
    w.o.__dict__ = {"n": k, "m": p}
    del w.o.n
    return sorted(vars(w.o))


def dict_read_then_replaced(w, p, k):
    before = w.o.n
    w.o.__dict__ = {"n": k}
    return before, w.o.n


def no_dict(w, p, k):
    try:
        w.o.__dict__ = k
    except TypeError:
        w.o.n += 1
    return w.o.n


def defaults_then_called(w, p, k):
    w.step.__defaults__ = (k,)
    return w.step(p)


def defaults_then_taken(w, p, k):
    w.step.__defaults__ = (k,)
    return w.step()


def defaults_taken_away(w, p, k):
    w.step.__defaults__ = (p * k,)
    r = w.step()
    w.step.__defaults__ = None
    return r


def defaults_that_change(w, p, k):
    w.step.__defaults__ = ([k],)
    w.step.__defaults__[0].append(1)
    return w.step(p)


def no_defaults(w, p, k):
    try:
        w.step.__defaults__ = 5
    except TypeError:
        pass
    return w.step()


def keywords_then_called(w, p, k):
    w.scaled.__kwdefaults__ = {"z": k}
    return w.scaled(p)


def keywords_that_change(w, p, k):
    w.scaled.__kwdefaults__ = {"z": [k]}
    return w.scaled(p)


def keywords_changed(w, p, k):
    w.scaled.__kwdefaults__ = {"z": k}
    w.scaled.__kwdefaults__["z"] = k + 1
    return w.scaled(p)


def code_then_called(w, p, k):
    w.scaled.__code__ = _added.__code__
    return w.scaled(p)


def cell_then_called(w, p, k):
    w.cell.cell_contents = k
    return w.step(p)


def called_then_cell(w, p, k):
    r = w.step(p)
    return r, w.cell.cell_contents


def cell_counted(w, p, k):
    w.cell.cell_contents += 1
    return w.step(p)


def cell_emptied(w, p, k):
    del w.cell.cell_contents
    try:
        w.step(p)
    except NameError:
        w.cell.cell_contents = k
    return w.step(p)


def cell_by_name(w, p, k):
    setattr(w.cell, "cell_contents", k)  # noqa: B010 - this way, too
    r = getattr(w.cell, "cell_contents")  # noqa: B009
    return r, w.step(p), r


def cell_read(w, p, k):
    return p * w.cell.cell_contents


PROGRAMS = [
    *(dict_then_read, dict_then_changed_inside, dict_then_stored, dict_then_asked),
    *(dict_then_deleted, dict_read_then_replaced, no_dict),
    *(defaults_then_called, defaults_then_taken, defaults_taken_away, defaults_that_change),
    *(no_defaults, keywords_then_called, keywords_that_change, keywords_changed),
    *(code_then_called, cell_then_called, called_then_cell, cell_counted, cell_emptied),
    *(cell_by_name, cell_read),
]
# The caller does not get back what the guard compares with.
ANEW = {dict_read_then_replaced, defaults_that_change, no_defaults}


def _run(program, wrap):
    w = World()
    f = wrap(lambda p, k: program(w, p, k))
    outcomes = []
    for i, k in enumerate((2, 1, 1, 0, 3, 1, 4, 2)):
        outcomes.append((str(f(torch.ones(2), k)), w.seen()))
        if i == 4:
            w.o.__dict__ = {"n": 7}
            w.step.__defaults__ = (torch.ones(1),)
            w.scaled.__kwdefaults__ = {"z": 2}
            w.cell.cell_contents = 5
    return outcomes, f


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_is_the_calls_own(program):
    wanted, _ = _run(program, lambda f: f)
    found, f = _run(program, lambda f: magpy.compile(f, backend="eager"))
    assert found == wanted
    assert magpy.stats(f).hits >= 3 or program in ANEW


# A dict that others have, too, becomes that of an object.
_SHARED = {"n": 1}


def of_outside(o, p, k):
    o.__dict__ = _SHARED
    _SHARED["n"] = k
    return o.n


def of_outside_and_counted(o, p, k):
    o.__dict__ = _SHARED
    o.n += 1
    return _SHARED["n"]


def of_another(o, p, k):
    o.__dict__ = p.__dict__
    o.n = k
    return p.n


def replaced_and_put_back(o, p, k):
    own = o.__dict__
    o.__dict__ = {"n": k}
    between = o.n
    o.__dict__ = own
    return between, o.n


def replaced_and_deleted(o, p, k):
    o.__dict__ = {"n": k}
    del o.__dict__
    return hasattr(o, "n")


@pytest.mark.parametrize(
    "program",
    [of_outside, of_outside_and_counted, of_another, replaced_and_put_back, replaced_and_deleted],
    ids=lambda f: f.__name__,
)
def test_a_dict_that_others_have_too(program):
    def outcomes(wrap):
        _SHARED["n"] = 1
        o, p, found = _Thing(), _Thing(), []
        o.n, p.n = 1, 2
        f = wrap(lambda x, k: (x * 2, program(o, p, k))[1])
        for i, k in enumerate((1, 1, 2, 3, 3, 5, 4)):
            if i == 3:
                _SHARED["n"], p.n = 9, 7
            which = vars(o) is _SHARED, vars(o) is vars(p)
            found.append((f(torch.ones(1), k), which, dict(vars(o)), dict(vars(p)), dict(_SHARED)))
        return found, f

    wanted, _ = outcomes(lambda f: f)
    found, f = outcomes(lambda f: magpy.compile(f, backend="eager"))
    assert found == wanted
    assert magpy.stats(f).hits >= 2
