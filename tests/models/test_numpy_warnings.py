"""What a step that numpy does would warn of: kept in a list, and shown later."""

from __future__ import annotations

import sys
import warnings

import numpy as np
import pytest

from magpy.models import numpy_warnings

ZEROS = np.zeros(2)


def here():
    frame = sys._getframe(1)
    return frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name, {"__name__": "program"}


def test_a_step_tells_and_does_not_warn():
    told = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = numpy_warnings.telling(np.log)(told, ZEROS)
    assert np.isneginf(result).all()
    assert [text for text, _ in told] == ["divide by zero encountered in log"]
    assert (
        told[0][1][0] == numpy_warnings.__file__
    )  # where nothing stands for a line of the program


def test_a_step_that_fails_in_two_ways_tells_both():
    told = []
    numpy_warnings.telling(np.divide)(told, np.array([0.0, 1.0]), ZEROS)
    assert {text for text, _ in told} == {
        "divide by zero encountered in divide",
        "invalid value encountered in divide",
    }


@pytest.mark.parametrize("choice", ["ignore", "raise"])
def test_other_choices_are_left_alone(choice):
    told = []
    with np.errstate(divide=choice):
        if choice == "raise":
            with pytest.raises(FloatingPointError, match="divide by zero"):
                numpy_warnings.telling(np.log)(told, ZEROS)
        else:
            numpy_warnings.telling(np.log)(told, ZEROS)
    assert numpy_warnings.is_silent(told)


def test_the_programs_callback_is_left_alone():
    heard, told = [], []
    with np.errstate(divide="call", call=lambda kind, flag: heard.append(kind)):
        assert numpy_warnings.calls_back()
        numpy_warnings.telling(np.log)(told, ZEROS)
    assert not numpy_warnings.calls_back()
    assert heard == ["divide by zero"]
    assert numpy_warnings.is_silent(told)


@pytest.mark.parametrize(("action", "times"), [("always", 2), ("default", 1), ("ignore", 0)])
def test_what_was_told_is_shown_as_often_as_the_filters_say(action, times):
    site = here()
    told = [("overflow encountered in exp", site)] * 2
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter(action)
        numpy_warnings.show(told)
    assert [(str(w.message), w.category, w.filename, w.lineno) for w in shown] == [
        ("overflow encountered in exp", RuntimeWarning, *site[:2])
    ] * times


def test_a_line_that_has_shown_a_warning_may_have_it_unseen():
    site = here()
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("default")
        assert not numpy_warnings.may_be_unseen(site)
        numpy_warnings.show([("overflow encountered in exp", site)])
        assert numpy_warnings.may_be_unseen(site)
        assert not numpy_warnings.may_be_unseen((site[0], site[1] + 1, *site[2:]))


def test_filters_hide_warnings():
    site = here()
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert not numpy_warnings.hidden(site)
        warnings.filterwarnings("ignore", "divide by zero encountered in log")
        assert not numpy_warnings.hidden(site)
        assert numpy_warnings.may_be_unseen(site)
        warnings.simplefilter("ignore", RuntimeWarning)
        assert numpy_warnings.hidden(site)


@pytest.mark.parametrize(
    ("f", "computes"),
    [(np.log, True), (np.ndarray.astype, True), (np.ndarray.item, False), (getattr, False)],
)
def test_what_only_moves_elements_has_nothing_to_tell(f, computes):
    assert numpy_warnings.computes(f) is computes
