"""What a call stores in a class and reads there again is its own."""

import pytest
import torch

import magpy

PROGRAMS = """
H.rate = p
H.rate = p; x = H.rate
H.rate = p; H.rate = G.rate
H.rate = p; x = h.rate
H.rate = p; x = h.rate; h.own = x
B.rate = p; x = H.rate
B.rate = p; x = h.rate; H.rate = x
H.rate = p; p.append(1); x = H.rate
x = H.rate; H.rate = p; x = H.rate
H.rate = p; del H.rate; H.rate = p; x = H.rate
H.size = p; x = getattr(H, "size")
"""


@pytest.mark.parametrize("line", PROGRAMS.strip().splitlines())
def test_each_call_stores_an_object_of_its_own(line):
    def run(wrap):
        class B:
            pass

        class H(B):
            rate = None

        names = {"B": B, "H": H, "G": H, "h": H(), "torch": torch}
        body = line.replace("; ", "\n    ")
        exec(f"def f(t):\n    p = []\n    {body}\n    return t + 1, p", names)
        f = wrap(names["f"])
        results, found = [], []
        for _ in range(4):
            p = f(torch.ones(1))[1]
            p.append(len(results))
            held = [vars(c).get(n) for c in (B, H) for n in ("rate", "size")]
            held.append(vars(names["h"]).get("own"))
            found.append(([x is p for x in held], list(p), any(p is x for x in results)))
            results.append(p)
        return found, f

    want, _ = run(lambda f: f)
    got, _ = run(lambda f: magpy.compile(f, backend="eager"))
    assert got == want
