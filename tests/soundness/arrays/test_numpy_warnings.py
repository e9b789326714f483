"""What numpy warns of where arithmetic with values that follow from data fails.

Owns which warnings a call shows, from which lines, and in which order with other output, under the
filters of the program and in calls of other data than the captured one.  Does not own warnings of
torch's operations (tests/soundness/effects/test_warnings.py), nor how a step tells of them
(tests/capture/test_arithmetic.py).
"""

from __future__ import annotations

import contextlib
import io
import operator
import warnings

import numpy as np
import pytest
import torch

import magpy

LINES = {
    "a_function": "float(np.log(x.numpy()).sum())",
    "an_array_that_is_kept": "torch.from_numpy(np.log(x.numpy()))",
    "an_operator": "n / (n - 1)",
    "an_operator_of_two": "(n - n) / n, 1 / n",
    "two_kinds": "(n * np.array([1.0, 0.0])) / (n * 0)",
    "in_place": "operator.itruediv(n, n - 1)",
    "a_cast": "(1 / n).astype(int)",
    "a_scalar": "n[0] / (n[0] * 0)",
    "a_method": "n.__truediv__(n * 0)",
    "out": "np.divide(1, n, out=np.empty_like(n))",
    "a_reduction": "np.divide.reduce(n - 1)",
    "a_power": "n**-1.5",
    "overflow": "np.exp(n * 1e5)",
    "integers": "x.int().numpy() // (x.int().numpy() * 0)",
    "two_results": "np.divmod(n, n * 0)",
    "an_array_before_a_tensor": "np.array([1.0, 2.0]) / x.numpy()",
    "constants_too": "np.log(np.zeros(2)) + n",
    "numpys_own_python": "np.var(n[:1], ddof=1)",
    "an_empty_mean": "np.mean(n[n > 5])",
    "a_branch": "'inf' if np.isinf(1 / n).any() else 'no'",
    "a_helper": "helper(x)",
    "a_unary_after_constants": "np.ones(2) / np.zeros(2), -n",
    "one_line_for_constants_and_data": "ratio(np.zeros(2), np.zeros(2)), ratio(np.ones(2), n)",
    "one_line_in_a_loop": "[ratio(a, b) for a, b in ((np.zeros(1), np.zeros(1)), (1, n))]",
}
BLOCKS = {
    "a_statement_in_place": "n /= n - 1\n    return n",
    "a_store": "m = np.zeros(2, dtype=int)\n    m[:] = 1 / n\n    return m",
    "a_store_that_casts": "m = n.astype(int)\n    m[:] = 1 / n\n    return m",
    "an_attribute_that_casts": "m = n.astype(int)\n    m.flat = 1 / n\n    return m",
    "a_check_after_a_change": "y = x.add_(1)\n    return np.isinf(1 / n).any(), y",
    "a_change_of_an_object": "seen.append(1)\n    return np.log(n)",
    "caught_warnings": """with warnings.catch_warnings(record=True) as w:
        warnings.simplefilter("always")
        r = np.log(n)
    return r, [str(v.message) for v in w]""",
    "ignored_warnings": """with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        r = np.log(n)
    return r, np.log(n)""",
    "a_state_of_numpys": """with np.errstate(all="ignore"):
        r = np.log(n)
    return r, np.log(n)""",
    "an_error_that_is_caught": """try:
        return np.log(n)
    except RuntimeWarning as e:
        return str(e)""",
}
BODIES = {name: f"return {line}" for name, line in LINES.items()} | BLOCKS
GOOD, BAD = [1.0, 2.0], [0.0, 1.0]
DATA = [[BAD] * 4, [GOOD, GOOD, BAD, GOOD, BAD], [BAD, GOOD, GOOD, BAD]]
SOURCE = """
def helper(v):
    return np.log(v.numpy())

def ratio(a, b):
    return a / b

def f(x):
    n = x.numpy().copy()
    {}
"""


def function(body):
    names = {"np": np, "torch": torch, "operator": operator, "warnings": warnings, "seen": []}
    scope = names | {"__name__": "program"}
    exec(compile(SOURCE.format(body), "program.py", "exec"), scope)
    return scope["f"]


def shown(f, data, action):
    """Of each call its result, its tensor afterwards, and the warnings with their lines."""
    out = []
    with warnings.catch_warnings(record=True) as found:
        warnings.resetwarnings()
        warnings.simplefilter(action)
        for values in data:
            before = len(found)
            x = torch.tensor(values)
            try:
                result = repr(f(x))
            except RuntimeWarning as e:
                result = f"raises {e}"
            told = [w for w in found[before:] if w.category is not magpy.MagpyWarning]
            lines = [(str(w.message), w.category, w.filename, w.lineno) for w in told]
            out.append((result, x.tolist(), lines))
    return out


@pytest.mark.parametrize("action", ["always", "default", "module", "once", "error"])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_warnings_are_those_of_eager(body, action):
    for data in DATA:
        expected = shown(function(body), data, action)
        assert "encountered" in str(expected) or action == "error"
        assert shown(magpy.compile(function(body), backend="eager"), data, action) == expected


def test_calls_that_warn_run_eagerly_and_others_are_served():
    c = magpy.compile(function(BODIES["a_function"]), backend="eager")
    shown(c, [BAD, GOOD, GOOD, BAD, GOOD], "always")
    stats = magpy.stats(c)
    assert stats.hits == 2 and stats.captures == 1, stats
    assert all("numpy warns of arithmetic that fails" in reason for reason in stats.reasons)
    assert stats.reasons


def test_warnings_keep_their_place_among_other_output():
    def f(x):
        print("before")
        n = np.log(x.numpy())
        print("after")
        return n

    def output(f):
        told = io.StringIO()
        with (
            contextlib.redirect_stdout(told),
            contextlib.redirect_stderr(told),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("always")
            for values in [BAD, BAD, GOOD, BAD]:
                f(torch.tensor(values))
        return told.getvalue()

    c = magpy.compile(f, backend="eager")
    assert output(c).replace("MagpyWarning", "") == output(f)
    assert "numpy warns of arithmetic that fails" in magpy.stats(c).reasons[0]


def test_a_call_that_no_entry_serves_warns_once():
    def f(x):
        return "large" if np.log(x.numpy()).max() > 5 else "small"

    def count(f):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            results = [f(torch.tensor(v)) for v in ([0.0, 1.0], [0.0, 2.0], [0.0, 1e9], [0.0, 1.0])]
        found = [w for w in found if w.category is not magpy.MagpyWarning]
        return results, [(str(w.message), w.lineno) for w in found]

    assert count(magpy.compile(f, backend="eager")) == count(f)


class Log:
    def __init__(self, heard):
        self.heard = heard

    def write(self, text):
        self.heard.append(text)


@pytest.mark.parametrize("choice", ["call", "log"])
def test_a_callback_of_the_programs_hears_of_failures(choice):
    def f(x, heard):
        told = Log(heard) if choice == "log" else lambda kind, flag: heard.append(kind)
        with np.errstate(divide=choice, call=told):
            return np.log(x.numpy())

    c = magpy.compile(f, backend="eager")
    for values in [GOOD, BAD, GOOD, BAD]:
        eager, compiled = [], []
        f(torch.tensor(values), eager)
        c(torch.tensor(values), compiled)
        assert compiled == eager
    assert "calls the program" in magpy.stats(c).reasons[0]


def test_a_callback_from_outside_hears_of_failures():
    heard = []

    def f(x):
        heard.append("call")
        r = np.log(x.numpy())
        return r, len(heard)

    def seen(f):
        heard.clear()
        with np.errstate(divide="call", call=lambda kind, flag: heard.append(kind)):
            results = [repr(f(torch.tensor(v))) for v in [GOOD, BAD, GOOD, BAD]]
        return results, list(heard)

    assert seen(magpy.compile(f, backend="eager")) == seen(f)


@pytest.mark.parametrize("action", ["always", "default"])
def test_a_filter_for_one_text_hides_it(action):
    f = function("return 'inf' if np.isinf(np.log(n)).any() else 'no', 1 / n")

    def seen(f):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter(action)
            warnings.filterwarnings("ignore", "divide by zero encountered in log")
            results = [repr(f(torch.tensor(v))) for v in [BAD, BAD, GOOD, BAD, BAD]]
        found = [w for w in found if w.category is not magpy.MagpyWarning]
        return results, [str(w.message) for w in found]

    assert seen(magpy.compile(f, backend="eager")) == seen(f)


def test_numbers_of_arrays_go_into_graphs():
    total = torch.zeros(2)

    def f(x):
        total.add_(1)
        s = x.numpy().sum()
        with torch.no_grad():
            return torch.relu(x) * s.item() + float(np.sqrt(s)) + total

    c = magpy.compile(f, backend="eager")
    results = []
    for g in (f, c):
        total.zero_()
        results.append([g(torch.tensor([1.0, v])).tolist() for v in (2.0, 2.0, 3.0, 4.0)])
    assert results[0] == results[1]
    assert magpy.stats(c).hits == 3, magpy.stats(c).reasons
