"""Exceptions from outside that a call raises: these remember where they were raised."""

from __future__ import annotations

import traceback

import pytest
import torch

import magpy


class Error(Exception):
    pass


class World:
    def __init__(self):
        self.first, self.second = Error(1), Error(2)


def handled(w, x):
    try:
        raise w.first
    except Error:
        pass
    return x + 1


def leaves(w, x):
    raise w.first


def leaves_for_a_reason(w, x):
    raise w.first from w.second


def leaves_after_a_look(w, x):
    try:
        raise w.first
    finally:
        x.add_(1)


def _raise(w):
    raise w.first


def passes(w, x):
    try:
        _raise(w)
    except Error:
        raise


def passes_by_name(w, x):
    try:
        _raise(w)
    except Error as e:
        raise e


def without_its_traceback(w, x):
    raise w.first.with_traceback(None)


def while_another_is_handled(w, x):
    try:
        raise w.first
    except Error:
        try:
            raise w.second
        except Error as e:
            return x, e.__context__ is w.first


def made_and_kept(w, x):
    try:
        raise Error(3)
    except Error as e:
        w.first = e
    raise w.first


PROGRAMS = [
    *(handled, leaves, leaves_for_a_reason, leaves_after_a_look, passes, passes_by_name),
    *(without_its_traceback, while_another_is_handled, made_and_kept),
]


def _lines(error):
    found, tb = [], error.__traceback__
    while tb is not None:
        code = tb.tb_frame.f_code
        if code.co_filename == __file__ and code.co_name != "_outcomes":
            found.append((code.co_name, tb.tb_lineno))
        tb = tb.tb_next
    return found


def _outcomes(program, wrap):
    w = World()
    f = wrap(lambda x: program(w, x))
    found = []
    for old in (False, False, True, False, False, True, False):
        if old:
            w.first.__traceback__ = None
        try:
            result = str(f(torch.ones(1)))
        except Error as e:
            cause, context = type(e.__cause__), type(e.__context__)
            result = e is w.first, e.args, _lines(e), cause, context
        found.append((result, _lines(w.first), _lines(w.second), type(w.second.__context__)))
    return found, f


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_remember_where(program):
    wanted, _ = _outcomes(program, lambda f: f)
    found, f = _outcomes(program, lambda f: magpy.compile(f, backend="eager"))
    assert found == wanted
    assert magpy.stats(f).reasons


def test_one_that_has_been_raised_before_the_first_call():
    w = World()
    f = magpy.compile(lambda x: leaves(w, x), backend="eager")
    for called in (lambda x: leaves(w, x), f, f, f):
        with pytest.raises(Error):
            called(torch.ones(1))
    assert [name for name, _ in _lines(w.first)].count("leaves") == 4
    assert "the call raised Error" in magpy.stats(f).reasons[0]


def test_tracebacks_show_the_lines_and_the_locals():
    def program(t):
        secret = 7
        if t.shape[0] == 3:
            raise ValueError(secret)
        return t

    f = magpy.compile(program, backend="eager")

    def frames():
        with pytest.raises(ValueError, match="7") as info:
            f(torch.ones(3))
        last = traceback.extract_tb(info.tb)[-1]
        tb = info.tb
        while tb.tb_next is not None:
            tb = tb.tb_next
        return (last.name, last.lineno), "secret" in tb.tb_frame.f_locals

    eager, again = frames(), frames()
    assert eager == again
    assert eager[1]
    assert "the call raised ValueError" in magpy.stats(f).reasons[0]
