"""`make demo` runs: its programs can be built and called. What it compiles is others' to test."""

import pytest
import torch

from demo.__main__ import refused_program
from demo.programs import MODELS, REFUSED


@pytest.mark.parametrize("case", MODELS, ids=lambda case: case.name)
def test_each_model_of_the_demo_can_be_called(case):
    torch.manual_seed(0)
    with torch.no_grad():
        result = case.make()(*case.example(1))
    assert result is not None


def test_the_refused_program_is_the_one_that_the_demo_tells_of():
    assert callable(refused_program)
    x = REFUSED.example(1)
    state, told = REFUSED.make()(*x)
    assert state.shape == x[0].shape
    assert told["steps"] <= 20
