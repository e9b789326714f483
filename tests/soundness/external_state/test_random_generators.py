"""Random generators whose classes, or which themselves, have methods of the program's own."""

from __future__ import annotations

import random

import pytest
import torch

import magpy


class Counting(random.Random):
    count = 0

    def random(self):
        self.count += 1
        return super().random()


class CountingBits(random.Random):
    count = 0

    def random(self):
        return super().random()

    def getrandbits(self, k):
        self.count += 1
        return super().getrandbits(k)


class Other(random.Random):
    count = 0

    def __init__(self, seed):
        super().__init__(seed)
        self.other = random.Random(7)

    def random(self):
        return self.other.random()


def _patched(seed):
    generator = random.Random(seed)
    generator.count = 0
    own = generator.random

    def counted():
        generator.count += 1
        return own()

    generator.random = counted
    return generator


class Plain(random.Random):
    """With nothing of its own that draws."""

    count = 0


DRAWS = {
    "uniform": lambda r: r.uniform(0, 1),
    "choice": lambda r: r.choice([0.2, 0.7, 0.9]),
    "sample": lambda r: r.sample([0.1, 0.6, 0.8], 2)[0],
    "randrange": lambda r: r.randrange(5) / 5,
    "gauss": lambda r: r.gauss(0.5, 0.2),
}


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("make", [Counting, CountingBits, Other, _patched, Plain])
def test_draw_as_in_eager(make, draw):
    def outcomes(wrap):
        generator = make(5)

        def program(x):
            if DRAWS[draw](generator) > 0.5:
                return x + generator.count
            return x - 1 - generator.count

        f = wrap(program)
        found = [f(torch.tensor([v])).item() for v in (1.0, 2.0, 3.0, -1.0, -2.0, 4.0, 5.0)]
        state = generator.other.getstate() if make is Other else generator.getstate()
        return found, generator.count, state, f

    wanted = outcomes(lambda f: f)
    found = outcomes(lambda f: magpy.compile(f, backend="eager"))
    assert found[:3] == wanted[:3]
    if make is Plain:
        assert magpy.stats(found[3]).hits >= 1
