"""Functions that raise since they do not take their arguments have no frame that tells of them."""

from __future__ import annotations

import functools

import pytest
import torch

import magpy


def _function(h):
    return lambda x: h(x)


def _star(h):
    return lambda x: h(*(x,))


def _star_star(h):
    return lambda x: h(**{"x": x})


def _method(h):
    thing = type("Thing", (), {"h": h, "n": 1})()
    thing.__class__.h = lambda self, *a: None
    thing.__class__.h = h
    return lambda x: thing.h()


def _static(h):
    thing = type("Thing", (), {"h": staticmethod(h)})()
    return lambda x: thing.h(x)


def _made_by(h):
    cls = type("Thing", (), {"__init__": h})
    return lambda x: cls() and x * 1


def _new(h):
    cls = type("Thing", (), {"__new__": h})
    return lambda x: cls() and x * 1


def _called(h):
    thing = type("Thing", (), {"__call__": h})()
    return lambda x: thing()


def _partial(h):
    return lambda x: functools.partial(h)(x)


def _mapped(h):
    return lambda x: list(map(h, [x]))


def _looped(h):
    return lambda x: [y for y in map(h, [x])]  # noqa: C416 - who asks for the next element counts


def _key(h):
    return lambda x: sorted([x], key=h)


CALLS = [
    *(_function, _star, _star_star, _method, _static, _made_by, _new, _called),
    *(_partial, _mapped, _looped, _key),
]


def _keyword(h):
    h.__kwdefaults__ = {"b": 7}


def _default(h):
    h.__defaults__ = (7,)


def _code(h):
    h.__code__ = (lambda x: x * 7 if isinstance(x, torch.Tensor) else None).__code__


@pytest.mark.parametrize("change", [_keyword, _default, _code])
@pytest.mark.parametrize("handled", [False, True])
@pytest.mark.parametrize("call", CALLS)
def test_what_would_take_the_arguments_changes(call, handled, change):
    def outcomes(wrap):
        if change is _keyword:

            def h(x, *, b):
                return x * b if isinstance(x, torch.Tensor) else None
        else:

            def h(x, b):
                return x * b if isinstance(x, torch.Tensor) else None

        program = call(h)

        def tried(x):
            if not handled:
                return program(x)
            try:
                return program(x)
            except TypeError as error:
                return x * 2, str(error)

        f = wrap(tried)

        def outcome():
            try:
                return str(f(torch.ones(2)))
            except TypeError as error:
                return repr(error)

        found = [outcome() for _ in range(3)]
        change(h)
        return [*found, outcome(), outcome()]

    assert outcomes(lambda f: magpy.compile(f, backend="eager")) == outcomes(lambda f: f)
