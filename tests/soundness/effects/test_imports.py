"""Imports within the call, and cells that functions of the program share with it.

PYTEST_DONT_REWRITE: the programs must be what they look like.
"""

import builtins
import sys
import types

import torch

from tests.soundness.worlds import case, check_all

CASES = []
x = torch.arange(3.0)


def module(name, **names):
    m = types.ModuleType(name)
    vars(m).update(names)
    sys.modules[name] = m
    return m


@case(CASES)
def a_name_is_imported_from_a_module(compile):
    m = module("magpy_tests_a", k=1)

    def f(t):
        from magpy_tests_a import k

        return t * k

    f, seen = compile(f), []
    seen += [f(x), f(x)]
    m.k = 5
    seen += [f(x), f(x)]
    module("magpy_tests_a", k=7)
    seen += [f(x), f(x)]
    yield seen  # at once: the worlds share sys.modules


@case(CASES)
def a_module_is_replaced_by_something_else(compile):
    m = module("magpy_tests_b", k=1)

    def f(t):
        import magpy_tests_b

        return t * magpy_tests_b.k

    f, seen = compile(f), []
    seen += [f(x), f(x)]
    sys.modules["magpy_tests_b"] = types.SimpleNamespace(k=3)
    seen += [f(x), f(x)]
    sys.modules["magpy_tests_b"] = m
    m.k = 4
    seen += [f(x), f(x)]
    yield seen  # at once: the worlds share sys.modules


@case(CASES)
def what_imports_is_replaced(compile):
    module("magpy_tests_e", k=1)
    real, other = builtins.__import__, types.SimpleNamespace(k=3)

    def imports(name, *args, **kwargs):
        return other if name == "magpy_tests_e" else real(name, *args, **kwargs)

    def f(t):
        import magpy_tests_e

        return t * magpy_tests_e.k

    f, seen = compile(f), []
    seen += [f(x), f(x)]
    builtins.__import__ = imports
    try:
        seen += [f(x), f(x)]
    finally:
        builtins.__import__ = real
    seen += [f(x), f(x)]
    yield seen


@case(CASES)
def a_submodule_is_replaced(compile):
    package = module("magpy_tests_c", __path__=[])
    package.d = module("magpy_tests_c.d", k=1)

    def f(t):
        import magpy_tests_c.d
        import magpy_tests_c.d as d

        return t * d.k + magpy_tests_c.d.k

    f, seen = compile(f), []
    seen += [f(x), f(x)]
    package.d = types.SimpleNamespace(k=2)
    seen += [f(x), f(x)]
    yield seen  # at once: the worlds share sys.modules


@case(CASES)
def a_returned_function_shares_what_the_call_did_not_read(compile):
    counts, items, n = {"n": 0}, [], 0

    def f(t):
        def step(k):
            nonlocal n
            n += k
            counts["n"] += 1
            items.append(k)
            return n, len(items), t + counts["n"]

        return step

    f = compile(f)
    for k in range(4):
        step = f(x)
        yield step(k), step(k), n, counts, items


@case(CASES, refused="a generator is kept")
def a_returned_generator_shares_what_the_call_did_not_read(compile):
    state = {"k": 1}

    def f(t):
        local = [t * 2]

        def values():
            for i in range(3):
                yield local[0] * i * state["k"]

        return values(), local

    f = compile(f)
    for k in (1, 1, 2):
        state["k"] = k
        values, local = f(x)
        first = next(values)
        state["k"] = k + 1
        local[0] = local[0] + 1
        yield first, list(values)


@case(CASES)
def slices_of_outside_lists_are_read_and_written(compile):
    items, other = [1, 2, 3, 4], [0, 0, 0]

    def f(t, k):
        other[1:] = items[:2]
        del other[k:]
        return t * sum(items[1:]), items[:-1], other[:]

    f = compile(f)
    yield f(x, 2), f(x, 2), other
    items[2] = 9
    yield f(x, 2), f(x, 2), other
    items.append(5)
    yield f(x, 1), f(x, 1), other


test_imports = check_all(CASES)
