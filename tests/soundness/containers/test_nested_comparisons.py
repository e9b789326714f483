"""What C code looks into where the program combines and compares: nested containers and arrays."""

import collections
import operator

import numpy as np
import pytest
import torch

import magpy

VALUES = [np.array([3.0]), np.array([3.0]), np.array([4.0]), np.array([[5.0]]), 2.0, 1.0, 1, True]

CONTAINERS = {
    "list": lambda v: [v],
    "tuple": lambda v: (v,),
    "deque": lambda v: collections.deque([v]),
    "nested": lambda v: [[v]],
    "objects": lambda v: np.array([v, None], dtype=object)[:1],
}

USES = {
    "add": lambda a, q: a + q,
    "add reflected": lambda a, q: q + a,
    "subtract": lambda a, q: a - q,
    "multiply": lambda a, q: q * a,
    "divide": lambda a, q: q / a,
    "power": lambda a, q: a**q,
    "in place": operator.iadd,
    "in place, reflected": lambda a, q: operator.iadd(q, a),
    "contains": lambda a, q: a in q,
    "compare": lambda a, q: a == q,
}

ARRAYS = {"array": lambda: np.array(1), "subclass": lambda: np.array(1).view(np.matrix)}
ARRAYS["scalar"] = lambda: np.float64(1)


def outcome(f, *args):
    try:
        return f(*args)
    except Exception as error:  # noqa: BLE001 - compared by the caller
        return type(error), str(error)


@pytest.mark.parametrize("array", ARRAYS)
@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("use", USES)
@pytest.mark.filterwarnings("ignore")
def test_an_array_looks_into_what_it_meets(use, container, array):
    f, make, other = USES[use], CONTAINERS[container], ARRAYS[array]

    def program(t, a, q):
        return t + 1, f(a, q)

    compiled = magpy.compile(program, backend="eager")
    t = torch.ones(2)
    for v in VALUES:
        got = outcome(compiled, t, other(), make(v))
        want = outcome(program, t, other(), make(v))
        assert repr(got) == repr(want)
        assert type(got[1]) is type(want[1])


ASKS = {
    "list": lambda q: [1] in q,
    "tuple": lambda q: [1] in tuple(q),
    "values": lambda q: [1] in dict(enumerate(q)).values(),
    "items": lambda q: (0, [1]) in dict(enumerate(q)).items(),
    "deque": lambda q: [1] in collections.deque(q),
    "deeper": lambda q: [[1]] in q,
    "index": lambda q: q.index([1]),
    "count": lambda q: q.count([1]),
}


@pytest.mark.parametrize("changed", [False, True], ids=["given", "changed"])
@pytest.mark.parametrize("ask", ASKS)
def test_containers_in_a_container_are_compared(ask, changed):
    f = ASKS[ask]

    def program(t, q):
        return t + 1, f(q)

    compiled = magpy.compile(program, backend="eager")
    t, kept = torch.ones(2), [[0]]
    for v in (2, 2, 1, 2.0, 1.0, True, [1], [2], 1):
        kept[0][0] = v
        q = kept if changed else [[v]]
        assert repr(outcome(compiled, t, q)) == repr(outcome(program, t, q))
    assert magpy.stats(compiled).captures > 1


def test_a_list_that_hears_when_it_is_walked_hears_as_often():
    heard = []

    class Rows(list):
        def __iter__(self):
            heard.append(1)
            return super().__iter__()

    def program(t, q):
        return t + 1, [1] in q

    compiled = magpy.compile(program, backend="eager")
    for v in (2, 1, 2):
        assert compiled(torch.ones(2), Rows([[v]]))[1] == (v == 1)
    assert not heard


@pytest.mark.filterwarnings("ignore")
def test_a_class_that_takes_no_operation_hears_once_of_each_after_a_refusal():
    heard = []

    class Untaken(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            heard.append(func.__name__)
            return NotImplemented

    t = torch.ones(2).as_subclass(Untaken)

    def program():
        return [[] == t, t == [], [] != t, t == []]

    wanted = program(), list(heard)
    heard.clear()
    assert (magpy.compile(program, backend="eager")(), heard) == wanted
