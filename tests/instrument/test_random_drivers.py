"""Random functions do the same as drivers, cut at random places: see random_programs.py.

`python -m tests.instrument.test_random_drivers COUNT [FIRST]` runs more of them.
"""

import random
import sys

import pytest

from tests.cpython.drivers import Drivers
from tests.instrument import random_programs


def differences(seed):
    """What a program does otherwise, with its text; None for nothing."""
    chance = random.Random(seed)
    text = random_programs.program(chance)
    file = f"<program {seed}>"
    random_programs.remember(file, text)
    plain = compile(text, file, "exec", dont_inherit=True)
    drivers = Drivers(seed)
    expected = [random_programs.outcome(plain, 0)]
    steps = len(expected[0][1])
    fails = [0, *(chance.randrange(1, steps + 1) for _ in range(3) if steps)]
    expected += [random_programs.outcome(plain, n) for n in fails[1:]]
    drivers.install()
    try:
        cut = drivers.compiled(text, file)
        got = [random_programs.outcome(cut, n) for n in fails]
    finally:
        drivers.remove()
    if drivers.crashes:
        return drivers.counts, f"{text}\n{drivers.crashes}"
    for n, a, b in zip(fails, expected, got, strict=True):
        if a != b:
            return drivers.counts, f"{text}\nstep {n} raises\nplain  {a}\ndriver {b}"
    return drivers.counts, None


def run(seeds):
    total = {"split": 0, "regions": 0, "regions run": 0}
    wrong = []
    for seed in seeds:
        counts, difference = differences(seed)
        for what in total:
            total[what] += counts[what]
        if difference is not None:
            wrong.append(f"# seed {seed}\n{difference}")
    return total, wrong


@pytest.mark.sampled(2)
@pytest.mark.filterwarnings("ignore")  # of coroutines that were never awaited, and the like
@pytest.mark.parametrize("part", range(4))
def test_random_functions_do_the_same_as_drivers(part):
    total, wrong = run(range(500 * part, 500 * (part + 1)))
    assert not wrong, f"{len(wrong)} programs differ\n" + "\n\n".join(wrong[:2])
    assert total["split"] > 400
    assert total["regions run"] > 2000


if __name__ == "__main__":
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    found, bad = run(range(first, first + int(sys.argv[1])))
    sys.stdout.write("\n\n".join(bad[:5]) + f"\n{found}, {len(bad)} differ\n")
    sys.exit(bool(bad))
