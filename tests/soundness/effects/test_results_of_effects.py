"""What calls give back that are made for their effect, which an entry makes last."""

from __future__ import annotations

import collections
import io
import sys

import pytest
import torch

import magpy


class _Number:
    n = 1


@pytest.mark.parametrize("stream", ["a text", "stdout", "a file"])
def test_how_much_was_written_of_data(stream, capsys, tmp_path):
    def outcomes(wrap, name):
        to = {
            "a text": io.StringIO,
            "stdout": lambda: sys.stdout,
            "a file": lambda: open(tmp_path / name, "w+"),  # noqa: SIM115
        }[stream]()
        f = wrap(lambda x: (x * 2, to.write("%.3g" % x.item())))  # noqa: UP031
        counts = [f(torch.tensor([v]))[1] for v in (1.0, 10.0, 1000.0, 1.25, 0.125)]
        if stream == "stdout":
            return counts, capsys.readouterr().out, f
        to.seek(0)
        text = to.read()
        to.close()
        return counts, text, f

    wanted = outcomes(lambda f: f, "eager")
    found = outcomes(lambda f: magpy.compile(f, backend="eager"), "compiled")
    assert found[:2] == wanted[:2]
    assert wanted[0] == [1, 2, 5, 4, 5]
    assert magpy.stats(found[2]).hits == 4


@pytest.mark.parametrize("dynamic", [None, True, False])
def test_how_much_was_written_of_a_number_that_varies(dynamic):
    def outcomes(wrap):
        to = io.StringIO()
        f = wrap(lambda x: x * to.write(str(_Number.n)))
        found = []
        for _Number.n in (1, 2, 10, 200, 3):
            found.append(f(torch.ones(1)).item())
        return found, to.getvalue()

    wanted = outcomes(lambda f: f)
    assert outcomes(lambda f: magpy.compile(f, backend="eager", dynamic=dynamic)) == wanted


def test_a_number_that_an_effect_returns_is_none_of_the_entrys():
    calls = []

    @magpy.effect
    def tick():
        calls.append(1)
        return len(calls)

    f = magpy.compile(lambda x: x * tick(), backend="eager")
    assert [f(torch.ones(1)).item() for _ in range(4)] == [1, 2, 3, 4]
    (reason,) = magpy.stats(f).reasons
    assert "tick runs in it" in reason
    assert "test_results_of_effects.py" in reason


def test_an_effect_in_python_runs_as_the_program_calls_it():
    calls = []

    @magpy.effect
    def tick():
        calls.append(1)

    f = magpy.compile(lambda x: (x * 2, tick())[0], backend="eager")
    assert [f(torch.ones(1)).item() for _ in range(4)] == [2, 2, 2, 2]
    assert len(calls) == 4
    assert "tick runs in it" in magpy.stats(f).reasons[0]


@pytest.mark.parametrize(
    ("make", "method", "given"),
    [(list, "append", 0), (bytearray, "extend", b"a"), (collections.deque, "appendleft", 1)],
    ids=lambda v: getattr(v, "__name__", str(v)),
)
def test_a_method_that_magpy_knows_is_followed_whatever_is_said_of_it(make, method, given):
    own, others = make(), make()
    assert magpy.effect(getattr(own, method)) == getattr(own, method)

    def program(x, held):
        getattr(held, method)(given)
        return x + len(held)

    for held in (own, others):
        f = magpy.compile(program, backend="eager")
        assert [f(torch.zeros(1), held).item() for _ in range(4)] == [1, 2, 3, 4]
        assert not magpy.stats(f).reasons


def test_c_code_that_changes_what_the_call_looks_at():
    class Sink(list):
        take = list.append

    sink = Sink()
    array = memoryview(bytearray(4))
    magpy.effect(array.release)
    f = magpy.compile(lambda x: (sink.take(1), x + len(sink))[1], backend="eager")
    assert [f(torch.zeros(1)).item() for _ in range(4)] == [1, 2, 3, 4]
