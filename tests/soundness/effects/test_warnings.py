"""Warnings of operations: shown as eager shows them, where eager shows them, as often."""

import traceback
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import magpy


def of_the_interpreter(x):
    return x[None, None].T


def of_a_function_of_torchs_in_python(x):
    return F.mse_loss(x, x[None]) + F.softmax(x).sum()


def below_a_function_of_torchs(x):
    return torch.meshgrid(x, x)[0]


def of_a_factory(x):
    return x + torch.range(0, 3).sum()


def of_an_attribute(x):
    y = x.clone().requires_grad_() * 2
    return x if y.grad is None else y


def of_numpy(x):
    return x + float(np.log(np.array([0.0]))[0] == 0)


def of_two_lines(x):
    y = x[None, None].T
    return y + x[None, None].T


def of_an_operation_that_raises(x):
    try:
        return F.mse_loss(x, torch.ones(3))
    except RuntimeError:
        return x


def of_the_program(x):
    warnings.warn("mine", stacklevel=1)
    return x + 1


def ahead_of_a_value_of_data(x):
    y = torch.range(0, 3) + x.sum()
    return y * 2 if y.sum() > 0 else y


def in_order_ahead_of_a_value_of_data(x):
    first = x[None, None].T
    y = torch.range(0, 3)
    return first if y.sum() > 0 else y


class Warns(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x + torch.range(0, 3).sum()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def below_a_function_of_the_programs(x):
    return Warns.apply(x)


PROGRAMS = [
    of_the_interpreter,
    of_a_function_of_torchs_in_python,
    below_a_function_of_torchs,
    of_a_factory,
    of_an_attribute,
    of_numpy,
    of_two_lines,
    of_an_operation_that_raises,
    of_the_program,
    ahead_of_a_value_of_data,
    in_order_ahead_of_a_value_of_data,
    below_a_function_of_the_programs,
]


@pytest.fixture(autouse=True)
def always():
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(before)
    forget()


def forget():
    """What was shown once may be shown again."""
    for place in (globals(), vars(F), vars(torch.functional)):
        place.pop("__warningregistry__", None)


def shown(f, mode, times=5):
    """What each call shows: text, class, file and line; and what it raises."""
    forget()
    said = []
    with warnings.catch_warnings():
        warnings.simplefilter(mode)
        for _ in range(times):
            with warnings.catch_warnings(record=True) as caught:
                try:
                    f(torch.ones(2))
                except Warning as error:
                    said.append((type(error), str(error)))
                said.append([(str(w.message), w.category, w.filename, w.lineno) for w in caught])
    return said


@pytest.mark.parametrize("mode", ["default", "always", "error", "ignore", "once", "module"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_a_warning_is_shown_where_and_as_often_as_eager_shows_it(program, mode):
    wanted = shown(program, mode)
    assert mode == "ignore" or any(wanted)
    compiled = magpy.compile(program, backend="eager")
    found = shown(compiled, mode)
    assert [w if type(w) is tuple else of_the_program(w) for w in found] == wanted
    # A list hears of what is shown, which is the program's: no entry may show anything.
    assert magpy.stats(compiled).hits == 4 or magpy.stats(compiled).reasons or mode == "error"


def of_the_program(call):
    return [w for w in call if w[1] is not magpy.MagpyWarning]


def silenced(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = x[None, None].T + torch.range(0, 3).sum()
    return y


def silenced_in_part(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = torch.range(0, 3)
    return y * 2 if y.sum() + x.sum() > 0 else y + x[None, None].T.sum()


def of_a_refused_call(x):
    x.untyped_storage()
    return x[None, None].T


@pytest.mark.parametrize("mode", ["default", "always"])
@pytest.mark.parametrize("program", [silenced, silenced_in_part, of_a_refused_call])
def test_what_the_program_silences_is_silent(program, mode):
    wanted = shown(program, mode)
    found = shown(magpy.compile(program, backend="eager"), mode)
    assert list(map(of_the_program, found)) == wanted
    assert any(wanted) is (program is of_a_refused_call)


def of_c(x):
    return x + float((np.array([1.0]) / 0)[0] > 0)


def caught(x):
    try:
        return x + torch.range(0, 3).sum()
    except UserWarning:
        return x


@pytest.mark.parametrize("program", [of_a_factory, of_c, caught])
def test_a_warning_that_is_an_error_in_one_call_is_none_in_the_next(program):
    def results(f):
        for mode in ("error", "ignore", "ignore"):
            with warnings.catch_warnings():
                warnings.simplefilter(mode)
                try:
                    yield f(torch.ones(2))
                except Warning as warning:
                    yield str(warning)

    wanted = list(results(program))
    found = list(results(magpy.compile(program, backend="eager")))
    assert all(map(same, found, wanted))
    assert not same(wanted[0], wanted[1])


def same(a, b):
    return (
        torch.equal(a, b)
        if isinstance(a, torch.Tensor) and type(a) is type(b)
        else a is b or a == b
    )


def test_a_function_that_shows_them_is_called_as_often():
    def shows(seen):
        def show(message, category, filename, lineno, file=None, line=None):
            if category is not magpy.MagpyWarning:
                seen.append((str(message), lineno))

        return show

    worlds = []
    for f in (of_two_lines, magpy.compile(of_two_lines, backend="eager")):
        forget()
        seen = []
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = shows(seen)
            for _ in range(4):
                f(torch.ones(2))
        worlds.append(seen)
    assert worlds[0] == worlds[1]
    assert len(worlds[0]) == 8


def test_compiled_graphs_repeat_no_warning():
    compiled = magpy.compile(of_two_lines, backend="aot_eager")
    compiled(torch.ones(2)), compiled(torch.ones(2))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        compiled(torch.ones(2))
    assert not caught
    # The call with a list of warnings ran eagerly: what is warned of in a call is told to that.
    assert magpy.stats(compiled).hits == 1


def test_an_operation_that_raises_shows_the_programs_frames():
    def raises(x):
        return x @ torch.ones(7, 7)

    def frames(f):
        try:
            f(torch.ones(2, 2))
        except RuntimeError as error:
            return [(s.name, s.lineno) for s in traceback.extract_tb(error.__traceback__)][1:]

    compiled = magpy.compile(raises, backend="eager")
    wanted = frames(raises)
    assert len(wanted) == 1
    assert [frames(compiled) for _ in range(3)] == [wanted] * 3
    assert "raises a RuntimeError" in magpy.stats(compiled).reasons[0]
