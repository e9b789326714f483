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


@pytest.mark.parametrize("read", ["H.rate", "h.rate", "getattr(H, 'rate')", "type(h).rate"])
def test_what_hides_it_later_is_seen(read):
    """Between calls a class, or the object, gets one of its own."""

    def run(wrap):
        class B:
            pass

        class H(B):
            pass

        h = H()
        names = {"B": B, "H": H, "h": h}
        body = f"p = [1]\n    B.rate = p\n    x = {read}\n    return t * len(x), x is p"
        exec(f"def f(t):\n    {body}", names)
        f = wrap(names["f"])
        found = []
        for i in range(8):
            if i == 2:
                H.rate = [1, 2]
            elif i == 4:
                del H.rate
            elif i == 6:
                h.rate = [1, 2, 3]
            product, own = f(torch.ones(1))
            found.append((product.item(), own))
        return found

    assert run(lambda f: magpy.compile(f, backend="eager")) == run(lambda f: f)


@pytest.mark.parametrize("value", [3, "text", 10**20, print], ids=repr)
def test_what_is_stored_is_stored_though_a_base_has_it_too(value):
    def run(wrap):
        class A:
            v = value

        class B(A):
            v = value

        def store(t):
            B.v = value
            return t + 1

        f, found = wrap(store), []
        for i in range(6):
            if i in (2, 4):
                del B.v
            f(torch.ones(1))
            found.append("v" in vars(B))
        return found

    assert run(lambda f: magpy.compile(f, backend="eager")) == run(lambda f: f) == [True] * 6
