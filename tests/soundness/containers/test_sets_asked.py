"""A set that is asked for an element alone: its other elements, and their order, do not count."""

import torch

import magpy

A, B = type("A", (), {}), type("B", (), {})


def asking(seen, item):
    def f(x):
        return x + 1 if item in seen else x - 1

    return f


def test_another_element_does_not_count():
    seen = {A, int}
    f = asking(seen, A)
    c = magpy.compile(f, backend="eager")
    x = torch.ones(2)
    c(x)
    seen.add(B)
    assert torch.equal(c(x), f(x))
    assert magpy.stats(c).captures == 1
    seen.discard(A)
    assert torch.equal(c(x), f(x))
    assert magpy.stats(c).captures == 2
    seen.add(A)
    assert torch.equal(c(x), f(x))
    assert magpy.stats(c).captures == 2


def test_an_element_that_is_not_there():
    seen = set()
    f = asking(seen, "a")
    c = magpy.compile(f, backend="eager")
    x = torch.ones(2)
    for change in (seen.clear, lambda: seen.add("b"), lambda: seen.add("a"), seen.clear):
        change()
        assert torch.equal(c(x), f(x))
    assert magpy.stats(c).captures == 2


def test_what_the_call_has_put_there_is_its_own():
    def f(x, seen):
        known = "a" in seen
        seen.add("a")
        again = "a" in seen
        return x + 2 * known + again

    c = magpy.compile(f, backend="eager")
    mine, theirs = set(), set()
    x = torch.ones(2)
    for _ in range(3):
        assert torch.equal(c(x, mine), f(x, theirs))
        assert mine == theirs
        mine.add("c")
        theirs.add("c")
    for held in (mine, theirs):
        held.clear()
    assert torch.equal(c(x, mine), f(x, theirs))
    assert mine == theirs


def test_asked_after_it_was_changed():
    def f(x, seen):
        seen.discard("a")
        return x + ("a" in seen)

    c = magpy.compile(f, backend="eager")
    x = torch.ones(2)
    for start in ({"a"}, set(), {"a", "b"}, {"b"}):
        mine, theirs = set(start), set(start)
        assert torch.equal(c(x, mine), f(x, theirs))
        assert mine == theirs


def test_asked_and_iterated():
    def f(x, seen):
        if 1 in seen:
            for v in seen:
                x = x * v
        return x

    c = magpy.compile(f, backend="eager")
    x = torch.ones(2)
    for held in ({1, 2}, {1, 2}, {1, 3}, {2}, set(), {1, 2, 5}):
        assert torch.equal(c(x, held), f(x, held))


def test_frozen_sets_of_objects():
    seen = frozenset([A, int])
    f, g = asking(seen, A), asking(seen, B)
    x = torch.ones(2)
    for function in (f, g):
        c = magpy.compile(function, backend="eager")
        for _ in range(2):
            assert torch.equal(c(x), function(x))
        assert magpy.stats(c).hits == 1
