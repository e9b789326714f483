"""Tensors and what follows from them as text: f-strings, `format`, `%`, `str`, `repr`, `print`.

Owns that a text says what it says in eager in each call, and is no reason for another capture.
Does not own numbers that are formatted (tests/soundness/numbers).
"""

# ruff: noqa: F507, F522, UP031, UP032
from __future__ import annotations

import contextlib
import enum
import io
import re

import pytest
import torch

import magpy
from tests.backends_of_cases import SAMPLED_BACKENDS


class Kind(enum.Enum):
    MEAN = 1


class Meter:
    """As training scripts have it: it keeps tensors, and formats itself."""

    def __init__(self, name):
        self.name, self.kind = name, Kind.MEAN
        self.value, self.sum, self.count = 0, 0, 0

    def update(self, value):
        self.value = value
        self.sum += value
        self.count += 1
        self.average = self.sum / self.count

    def __str__(self):
        return "{name} {value:.3f} ({average:.3f})".format(**self.__dict__)


class Quiet:
    def __init__(self, value):
        self.value = value

    def __repr__(self):
        return f"<{self.value:.2f}>"


def in_an_f_string(y):
    print(f"loss {y:.3f} {y.item():8.2f}")


def in_an_f_string_as_it_is(y):
    return f"{y} {y!r} {y.detach()!s}"


def in_an_f_string_with_a_width(y):
    return f"{y:{len('four4')}.{2}f}"


def by_format(y):
    return "{:.3f}".format(y), "{0:.1f} {a:6.2f} {0:.2f}".format(y, a=y.item())


def by_format_with_names(y):
    return "{a:.3f} {b}".format(a=y, b=3, unused=Kind.MEAN)


def by_the_builtin(y):
    return format(y, ".4f"), format(y)


def by_a_percent_sign(y):
    y = y.detach()  # torch warns of the conversion of others
    return "%.3f" % y, "%d items, %.2f and %s" % (3, y, "text"), "%6.1f" % (y.item(),)


def as_str_and_repr(y):
    return str(y), repr(y.detach()), str(y.item()), repr([1, 2])


def printed(y):
    print("loss", y)
    print(y, y.item(), sep=" | ", end=".\n")


def printed_before_it_changes(y):
    z = y.detach().clone()
    print(z)
    z += 1
    print(z)


def of_an_object(y):
    meter = Meter("loss")
    meter.update(y.detach())
    meter.update(y.item())
    print(meter, str(meter), Quiet(y), repr(Quiet(y.item())))
    print("\t".join(["a", str(meter)] + [str(m) for m in (meter, meter)]))


def measured(y):
    return len(f"{y:.1f}") * torch.ones(2)


def decided(y):
    return torch.ones(2) if f"{y:.0f}" == "6" else torch.zeros(2)


PROGRAMS = [
    in_an_f_string,
    in_an_f_string_as_it_is,
    in_an_f_string_with_a_width,
    by_format,
    by_format_with_names,
    by_the_builtin,
    by_a_percent_sign,
    as_str_and_repr,
    printed,
    printed_before_it_changes,
    of_an_object,
]


def named(text):
    """A text without the name of what has made a tensor: a compiler's graph has one of its own."""
    return re.sub(r"grad_fn=<\w+>", "grad_fn=<>", text)


def outcome(f, x):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            result = f(x)
        except (TypeError, ValueError) as e:
            result = type(e), str(e)
    return result, out.getvalue()


def run(program, backend, values=(1.0, 2.0, 3.0, -0.5, 100.25, 7.0)):
    def step(x):
        y = (x * x).sum()
        return program(y)

    compiled = magpy.compile(step, backend=backend)
    for requires in (False, True):
        for v in values:
            x = torch.full((3,), v, requires_grad=requires)
            found, wanted = outcome(compiled, x), outcome(step, x)
            assert named(found[1]) == named(wanted[1])
            assert named(str(found[0])) == named(str(wanted[0]))
    return magpy.stats(compiled)


@pytest.mark.parametrize("backend", SAMPLED_BACKENDS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_a_text_is_that_of_the_call(program, backend):
    stats = run(program, backend)
    assert stats.captures == 2, "one for tensors that require gradients, and one for others"
    assert stats.eager_calls == 0


@pytest.mark.parametrize("program", [measured, decided], ids=lambda f: f.__name__)
def test_what_goes_by_a_text_is_right(program):
    run(program, "eager")


def wrong_letter(y):
    return f"{y:q}"


def too_few(y):
    return "%d %d" % (y,)  # it raises


def of_several_elements(y):
    return "%.2f" % torch.stack([y, y])


def format_of_several(y):
    return "{:.2f}".format(torch.stack([y, y]))


@pytest.mark.parametrize(
    "program",
    [wrong_letter, too_few, of_several_elements, format_of_several],
    ids=lambda f: f.__name__,
)
def test_what_raises_raises_as_in_eager(program):
    run(program, "eager")


class Loud(torch.Tensor):
    def __format__(self, spec):
        return "loud"

    def __repr__(self, **_):
        return "LOUD"


def test_a_class_of_the_programs_speaks_for_itself():
    def step(x):
        y = (x * 2).as_subclass(Loud)
        return f"{y}", str(y), "{}".format(y), format(y, "")

    compiled = magpy.compile(step, backend="eager")
    for i in range(4):
        x = torch.full((2,), float(i))
        assert compiled(x) == step(x)


def test_print_options_that_the_call_sets_count():
    def step(x):
        torch.set_printoptions(precision=2)
        text = str(x * 1.23456)
        torch.set_printoptions(profile="default")
        return text, str(x * 1.23456)

    compiled = magpy.compile(step, backend="eager")
    for i in range(4):
        x = torch.full((2,), i + 1.0)
        assert compiled(x) == step(x)


def test_print_options_of_the_caller_count():
    def step(x):
        return f"{x * 1.23456!r}"

    compiled = magpy.compile(step, backend="eager")
    for precision in (4, 2, 6, 4):
        torch.set_printoptions(precision=precision)
        try:
            assert compiled(torch.ones(2)) == step(torch.ones(2))
        finally:
            torch.set_printoptions(profile="default")


@pytest.mark.parametrize("regions", [False, True])
def test_the_format_may_be_another_one_in_each_call(regions, monkeypatch):
    """It names other arguments then."""
    monkeypatch.setattr(magpy.config, "regions", regions)

    def by_names(x, form, more):
        return form.format(a=x.sum(), b=x.sum().item(), **more), (form + " {a}").format(a=1, **more)

    def by_percent(x, form, more):
        return form % x.sum(), "%s %.2f" % (form, x.sum())

    names = ["{a:.2f}", "{b:.3f}", "{c} {a}", "{a:.1f} {c}", "{b} {{}}", "{a:{w}.2f}", "{d}", "no"]
    for f, forms in ((by_names, names), (by_percent, ["%.2f", "%.3f", "%d", "%s", "%q", "no"])):
        compiled = magpy.compile(f, backend="eager")
        for i, form in enumerate(forms * 2):
            args = torch.full((2,), i + 0.5), form, {"c": i, "w": 8}
            results = []
            for g in (f, compiled):
                try:
                    results.append(g(*args))
                except (KeyError, TypeError, ValueError) as e:
                    results.append((type(e), str(e)))
            assert results[0] == results[1]
