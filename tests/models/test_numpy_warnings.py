"""A step that numpy does gives nothing where numpy would warn."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from magpy import _interp
from magpy.models import numpy_warnings

ZEROS = np.zeros(2)


def test_a_step_that_fails_gives_nothing_and_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert numpy_warnings.strict(np.log)(ZEROS) is _interp.ABSENT
        assert numpy_warnings.strict(np.divide)(ZEROS, ZEROS) is _interp.ABSENT


def test_a_step_that_does_not_fail_gives_its_result():
    assert (numpy_warnings.strict(np.log)(np.ones(2)) == 0).all()
    assert numpy_warnings.strict(np.log).__name__ == "log"


def test_a_choice_to_ignore_is_left_alone():
    with np.errstate(divide="ignore"):
        assert np.isneginf(numpy_warnings.strict(np.log)(ZEROS)).all()


def test_the_programs_callback_is_known():
    with np.errstate(divide="call", call=lambda kind, flag: None):
        assert numpy_warnings.calls_back()
    assert not numpy_warnings.calls_back()


@pytest.mark.parametrize(
    ("f", "computes"),
    [(np.log, True), (np.ndarray.astype, True), (np.ndarray.item, False), (getattr, False)],
)
def test_what_only_moves_elements_has_nothing_to_tell(f, computes):
    assert numpy_warnings.computes(f) is computes
