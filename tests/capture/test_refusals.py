"""One refusal per run: the first one (magpy/capture/refusals.py)."""

import sys

import pytest
import torch

from magpy.capture import session
from magpy.capture.refusals import RefusalBox
from magpy.errors import Refusal


def test_the_first_refusal_is_kept():
    box = RefusalBox()
    box.keep(None)
    assert box.first is None
    first = Refusal("one")
    box.keep(first)
    box.keep(Refusal("two"))
    box.refuse("three")
    assert box.first is first


def test_a_refusal_names_the_line_of_the_program():
    box = RefusalBox()
    box.refuse("one", "Do another", passing=True)
    assert box.first is not None
    assert f"{__file__}:" in box.first.where
    assert box.first.remedy == "Do another"
    assert box.first.passing


def test_what_is_kept_holds_no_frames():
    box = RefusalBox()
    try:
        raise Refusal("one")
    except Refusal as r:
        box.keep(r)
    assert box.first is not None
    assert box.first.__traceback__ is None
    assert box.first.__context__ is None


def test_a_failure_refuses_the_run():
    box = RefusalBox()
    error = ValueError()
    box.fail(error)
    box.fail(TypeError())
    assert box.failure is error
    assert box.first is not None


def test_a_refusal_that_is_raised_is_no_failure():
    box = RefusalBox()
    box.fail(Refusal("one"))
    assert box.failure is None
    assert str(box.first) == "one"


def looks_at_the_caller(x):
    sys._getframe(2)


def calls_for_each_element(x):
    x.clone().apply_(lambda v: v)


@pytest.mark.parametrize(
    ("does", "reason"),
    [
        ((looks_at_the_caller, calls_for_each_element), "the frame of a caller is looked at"),
        ((calls_for_each_element, looks_at_the_caller), "Tensor.apply_ calls a function"),
    ],
)
def test_whoever_refuses_first_gives_the_reason(does, reason):
    def program(x):
        for f in does:
            f(x)
        return x + 1

    out = session.run(program, (torch.ones(2),), {})
    assert out.capture is None
    assert out.refusal is not None
    assert out.refusal.reason.startswith(reason)
    assert out.value.equal(torch.ones(2) + 1)
