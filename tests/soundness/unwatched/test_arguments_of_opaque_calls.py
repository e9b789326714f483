"""What a call that is recorded as one operation is given: it may look at it later, and change it.

They are `torch.autograd.Function.apply`, checkpointed blocks and what `magpy.allow_in_graph` takes.
"""

import collections
import copy
import functools
import types

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import magpy
from magpy.capture.tensors.escapes import Given
from tests.soundness.unwatched_programs import CallsBack
from tests.soundness.worlds import attempt, case, check_all

CAPTURED, REFUSED = [], []


class Calls(torch.autograd.Function):
    @staticmethod
    def forward(ctx, f, given, t):
        ctx.given = given
        return f(given, t)

    @staticmethod
    def backward(ctx, gradient):
        return None, None, gradient * len(ctx.given)


def applied(f, given, t):
    return Calls.apply(f, given, t)


def checkpointed(f, given, t):
    return checkpoint(f, given, t, use_reentrant=False)


@magpy.allow_in_graph
def allowed(f, given, t):
    return f(given, t)


def each(compile, program, *more):
    """Calls of a program with every kind of such a call, with what its backward pass does."""
    for by in applied, checkpointed, allowed:
        f = compile(lambda t, by=by: program(by, t, *more))
        for n in range(4):
            t = torch.full((2,), n + 1.0, requires_grad=True)
            result = attempt(f, t)
            y = result[0] if isinstance(result, tuple) else result
            if isinstance(result, tuple) and callable(result[1]):
                result[1](7)
            elif isinstance(result, tuple):
                result[1].append(4)
            y.sum().backward()
            yield by.__name__, y, t.grad


class Named(dict):
    pass


class Row(list):
    pass


class Pair(tuple):
    pass


class Slim(tuple):
    __slots__ = ()


Point = collections.namedtuple("Point", "x y")  # noqa: PYI024


def by_type(given, t):
    return t * (len(type(given).__name__) + len(given))


def make(kind, t):
    if issubclass(kind, dict):
        return kind(a=t, b=2)
    if issubclass(kind, Point):
        return kind(t, 2)
    return kind((2, 3))


@case(CAPTURED)
def classes_of_containers(compile):
    for kind in (torch.Size, collections.OrderedDict, Slim, Point, dict, list, tuple):
        yield from each(compile, lambda by, t, kind=kind: by(by_type, make(kind, t), t))


def by_types_within(given, t):
    sizes, named = given["sizes"]
    return t * (sizes.numel() + len(type(named).__name__)) + named["t"]


@case(CAPTURED)
def classes_of_containers_within_others(compile):
    def program(by, t):
        named = collections.OrderedDict(t=t, n=t.shape)
        return by(by_types_within, {"sizes": (t.shape, named)}, t)

    yield from each(compile, program)


@case(CAPTURED)
def keys_and_their_order(compile):
    mark = Point(1, 2)
    yield from each(
        compile,
        lambda by, t: by(
            lambda d, t: t * (2 if list(d) == [mark, 1, "b"] else 3), {mark: t, 1: t, "b": 2}, t
        ),
    )


@case(CAPTURED)
def tuples_that_torch_makes(compile):
    total = torch.ones(2)

    def program(by, t):
        total.add_(1)
        return by(lambda m, t: m[0] * t + m.indices, torch.max(t[None], dim=0), t) + total

    yield from each(compile, program)


@case(CAPTURED)
def named_tuples_and_what_is_in_them(compile):
    def sizes(p, t):
        return t * p.x.sum() * p.y.numel() * len(type(p).__name__)

    def ordered(p, t):
        return t * len(type(p.y).__name__)

    yield from each(compile, lambda by, t: by(sizes, Point(t, t.shape), t))
    yield from each(compile, lambda by, t: by(ordered, Point(t, collections.OrderedDict(a=1)), t))


class Holder:
    def __init__(self, held):
        self.held = held


@case(CAPTURED)
def containers_from_outside_are_the_very_ones(compile):
    for held in (
        [torch.ones(2)],
        {"a": torch.ones(2)},
        collections.OrderedDict(a=torch.ones(2)),
        Named(a=torch.ones(2)),
        Row([torch.ones(2)]),
        [1, 2],
        Row([1, 2]),
    ):
        holder = Holder(held)

        def program(by, t, holder=holder):
            return by(lambda d, t: t * (2 if d is holder.held else 3), holder.held, t)

        yield from each(compile, program)

        def nested(by, t, holder=holder):
            return by(lambda d, t: t * (2 if d[0] is holder.held else 3), (holder.held,), t)

        yield from each(compile, nested)


@case(CAPTURED)
def functions_of_the_call(compile):
    def program(by, t):
        k = 2
        scale = {"a": 3}

        def block(given, t):
            return t * k * scale["a"] * given[0]

        return by(block, [4], by(block, [5], t))

    yield from each(compile, program)


@case(CAPTURED)
def functions_of_the_call_that_call_each_other(compile):
    def program(by, t):
        def even(given, t):
            return t if given == 0 else odd(given - 1, t * 2)

        def odd(given, t):
            return even(given - 1, t * 3)

        return allowed(even, 4, t) if by is allowed else by(lambda g, t: even(g[0], t), [4], t)

    yield from each(compile, program)


def multiplied(held, t):
    return t * held["k"][0]


@case(CAPTURED)
def containers_in_partials(compile):
    yield from each(
        compile,
        lambda by, t: by(lambda f, t: f[0](t), (functools.partial(multiplied, {"k": [2, 3]}),), t),
    )


def scaled(held, v, t):
    return (v * held[0]).sin() + t


def same(given, t):
    return t * (2 if given[0] is given[1] else 3)


def refused_case(program):
    def run(compile):
        yield from each(compile, program)

    run.__name__ = program.__name__
    case(REFUSED, refused="what it is given may be looked at later")(run)
    return program


@refused_case
def a_list_twice(by, t):
    held = [t]
    return by(same, (held, held), t)


@refused_case
def a_list_that_a_function_holds(by, t):
    held = [1]
    return by(lambda d, t: t * (2 if d is held else 3), held, t)


@refused_case
def a_list_that_is_changed_by_it(by, t):
    held = []
    y = by(lambda d, t: (d.append(1), t * 2)[1], held, t)
    return y * len(held)


@refused_case
def a_list_that_is_changed_afterwards(by, t):
    held = [1]
    y = by(lambda d, t: t * 2, held, t)
    held.append(3)
    return y


@refused_case
def a_dict_in_which_a_tensor_is_replaced_afterwards(by, t):
    held = {"a": t}
    y = by(lambda d, t: d["a"] * 2, held, t)
    held["a"] = t * 5
    return y


@refused_case
def a_list_that_is_returned(by, t):
    held = [2]
    return by(lambda d, t: t * 2, held, t), held


@refused_case
def a_list_in_a_partial(by, t):
    held = [1.0]
    y = by(lambda d, t: d[0](t), (functools.partial(scaled, held, t),), t)
    held[0] = 2.0
    return y


@refused_case
def an_array_that_is_changed_afterwards(by, t):
    held = np.ones(2)
    y = by(lambda d, t: t * 2, held, t)
    held[0] = 5.0
    return y


@refused_case
def a_bytearray_that_is_changed_afterwards(by, t):
    held = bytearray(b"ab")
    y = by(lambda d, t: t * 2, (held, 1), t)
    held.append(1)
    return y


@refused_case
def a_list_that_is_other_while_a_pass_is_made(by, t):
    held = [1]
    z = (by(lambda d, t: t * 2, held, t) * 1).sum()
    held.append(3)
    (g,) = torch.autograd.grad(z, t)
    held.pop()
    return t * g


@refused_case
def a_list_in_a_closure_that_it_changes(by, t):
    held = []
    return by(lambda d, t: (held.append(1), t * len(held))[1], [1], t)


@refused_case
def a_dict_in_a_closure_that_is_changed_afterwards(by, t):
    held = {"a": 2}
    y = by(lambda d, t: t * held["a"], [1], t)
    held["a"] = 3
    return y


@refused_case
def a_variable_that_is_assigned_afterwards(by, t):
    k = 2
    y = by(lambda d, t: t * k, [1], t)
    k = 3
    return y


@refused_case
def a_variable_of_a_loop(by, t):
    for k in (2, 3, 4):
        t = by(lambda d, t: t * k, [1], t)  # noqa: B023 - that is what it is about
    return t


@refused_case
def a_variable_that_it_assigns(by, t):
    k = 2

    def block(d, t):
        nonlocal k
        k += 1
        return t * k

    return by(block, [1], t)


@refused_case
def a_variable_that_another_function_assigns_later(by, t):
    k = 2

    def block(d, t):
        return t * k

    def assign(v):
        nonlocal k
        k = v

    return by(block, [1], t) * k, assign


@refused_case
def a_function_that_counts_its_calls(by, t):
    def block(d, t):
        block.calls = getattr(block, "calls", 0) + 1
        return t * block.calls

    return by(block, [1], t)


@refused_case
def a_default_that_it_changes(by, t):
    def block(d, t, held=[2]):  # noqa: B006 - that is what it is about
        held[0] += 1
        return t * held[0]

    return by(block, [1], t)


@refused_case
def a_dict_of_a_class_of_its_own(by, t):
    return by(by_type, Named(a=t), t)


@refused_case
def a_list_of_a_class_of_its_own(by, t):
    return by(by_type, Row([t]), t)


@refused_case
def a_tuple_with_attributes(by, t):
    held = Pair((1, 2))
    held.tag = 3
    return by(lambda d, t: t * d.tag, held, t)


@refused_case
def a_default_dict(by, t):
    return by(by_type, collections.defaultdict(list, a=t), t)


@refused_case
def an_object_as_a_key(by, t):
    return by(lambda d, t: t * len(d), {Holder(1): t}, t)


def called_back(program, cases=REFUSED, refused="what it is given may be looked at later"):
    def run(compile):
        f = compile(lambda t: CallsBack.apply(program(), t))
        for _ in range(4):
            t = torch.ones(2, requires_grad=True)
            f(t).sum().backward()
            yield t.grad

    run.__name__ = program.__name__
    case(cases, refused=refused)(run)
    return program


@called_back
def a_variable_that_is_assigned_in_the_backward_pass():
    k = 0

    def block():
        nonlocal k
        k += 1
        return k

    return block


@called_back
def a_list_that_is_changed_in_the_backward_pass():
    held = []
    return lambda: (held.append(1), len(held))[1]


@called_back
def an_item_that_is_changed_in_the_backward_pass():
    held = {"a": 1}

    def block():
        held["a"] += 1
        return held["a"]

    return block


@called_back
def a_default_that_is_changed_in_the_backward_pass():
    def block(held=[0]):  # noqa: B006 - that is what it is about
        held[0] += 1
        return held[0]

    return block


@called_back
def an_attribute_of_itself_that_is_changed_in_the_backward_pass():
    def block():
        block.calls = getattr(block, "calls", 0) + 1
        return block.calls

    return block


def counted(held):
    held.append(1)
    return len(held)


def a_list_in_a_partial_that_is_changed_in_the_backward_pass():
    return functools.partial(counted, [])


called_back(a_list_in_a_partial_that_is_changed_in_the_backward_pass, CAPTURED, None)


test_captured = check_all(CAPTURED)
test_refused = check_all(REFUSED)


# ----------------------------------------------------------------------------- hooks of tensors


NO_HOOKS = []


def hooked(compile, program):
    f = compile(program)
    for _ in range(4):
        q, *more = f(torch.ones(2))
        heard = []
        q.register_hook(lambda g, heard=heard: heard.append(g.sum().item()))
        (q * 2).sum().backward()
        yield q, type(q._backward_hooks).__name__, heard, len(q._backward_hooks)
        yield [o is q._backward_hooks for o in more], [len(o) for o in more]


@case(NO_HOOKS, refused="its hooks are a dict of the call's")
def a_parameter_is_copied(compile):
    p = nn.Parameter(torch.arange(2.0))
    yield from hooked(compile, lambda t: (copy.copy(p),))


@case(NO_HOOKS, refused="its hooks are a dict of the call's")
def a_parameter_is_given_a_dict_for_hooks(compile):
    def program(t):
        q = nn.Parameter(t.clone())
        q._backward_hooks = collections.OrderedDict()
        return (q,)

    yield from hooked(compile, program)


@case(NO_HOOKS, refused="the dict is returned, too")
def a_dict_for_hooks_is_returned(compile):
    def program(t):
        q = nn.Parameter(t.clone())
        q._backward_hooks = hooks = collections.OrderedDict()
        return q, hooks

    yield from hooked(compile, program)


@case(NO_HOOKS, refused="two tensors share the dict")
def a_dict_for_the_hooks_of_two(compile):
    def program(t):
        q, r = nn.Parameter(t.clone()), nn.Parameter(t.clone())
        q._backward_hooks = r._backward_hooks = collections.OrderedDict()
        return q, r._backward_hooks

    yield from hooked(compile, program)


@case(NO_HOOKS, refused="the dict is from outside")
def a_dict_for_hooks_from_outside(compile):
    hooks = collections.OrderedDict()

    def program(t):
        q = nn.Parameter(t.clone())
        q._backward_hooks = hooks
        return (q,)

    for seen in hooked(compile, program):
        yield seen, len(hooks)


test_no_hooks = check_all(NO_HOOKS)


# ----------------------------------------------------------------------------- the mechanism


class Tensors:
    """Tensors by hand: the variable of one is where it is in the list."""

    def __init__(self, *known):
        self.all = list(known)

    def var_of(self, t):
        if self.known(t) is None:
            self.all.append(t)
        return self.known(t)

    def known(self, t):
        return next((i for i, x in enumerate(self.all) if x is t), None)


def given(v, anew=True, tensors=None):
    held = Given(tensors or Tensors())
    assert held.hold(v, "f", anew)
    return held


def function(k=None):
    def f(a, b=1, *, c=2):
        return a + b + c + k

    return f


CHANGES = {
    "a list grows": (lambda: [1, 2], lambda v: v.append(3)),
    "another element": (lambda: [1, 2], lambda v: v.__setitem__(0, 5)),
    "an element of another type": (lambda: [1, 2], lambda v: v.__setitem__(0, True)),
    "the other zero": (lambda: [0.0], lambda v: v.__setitem__(0, -0.0)),
    "an equal list within": (lambda: [[1]], lambda v: v.__setitem__(0, [1])),
    "another order": (lambda: {1: 1, 2: 2}, lambda v: v.update({1: v.pop(1)})),
    "another order of an OrderedDict": (
        lambda: collections.OrderedDict(a=1, b=1),
        lambda v: v.move_to_end("a"),
    ),
    "a key": (lambda: {1: 1}, lambda v: v.__setitem__(2, 2)),
    "a value": (lambda: {1: 1}, lambda v: v.__setitem__(1, 2)),
    "a tensor": (lambda: [torch.ones(2)], lambda v: v.__setitem__(0, torch.ones(2))),
    "a tensor for the number of its variable": (
        lambda: [torch.ones(2)],
        lambda v: v.__setitem__(0, 0),
    ),
    "an element of an array": (lambda: np.ones(2), lambda v: v.__setitem__(0, 5)),
    "the shape of an array": (lambda: np.ones(2), lambda v: setattr(v, "shape", (2, 1))),
    "a byte": (lambda: bytearray(b"ab"), lambda v: v.__setitem__(0, 5)),
    "a variable": (lambda: types.CellType(1), lambda v: setattr(v, "cell_contents", 2)),
    "a variable gets a value": (types.CellType, lambda v: setattr(v, "cell_contents", 1)),
    "a variable is deleted": (lambda: types.CellType(1), lambda v: delattr(v, "cell_contents")),
    "an attribute of a function": (function, lambda v: setattr(v, "n", 1)),
    "a default": (function, lambda v: setattr(v, "__defaults__", (5,))),
    "a default by name": (function, lambda v: v.__kwdefaults__.update(c=5)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_seen(name):
    make, change = CHANGES[name]
    v = make()
    held = given(v)
    assert held.changed() is None
    change(v)
    assert held.changed() is not None
    held.end()
    assert held.changed() is None


def test_another_code_is_seen():
    f = function()
    held = given(f)
    f.__code__ = function().__code__.replace(co_name="g")
    assert held.changed() is not None


def test_equal_plain_values_are_no_change():
    v = [1000, "text", 1.5, b"b"]
    held = given(v)
    v[:] = [int("1000"), "".join(["te", "xt"]), float("1.5"), bytes([98])]
    assert held.changed() is None


def test_a_tensor_that_a_list_holds_is_not_kept_alive_by_the_note():
    t = torch.ones(2)
    tensors = Tensors(t)
    held = given([t], tensors=tensors)
    ((_, before, *_),) = held._held.values()
    assert not any(isinstance(x, torch.Tensor) for x in before)


def test_what_is_made_anew_is_given_once():
    v, w = [1], [2]
    held = given(v, anew=True)
    assert not held.hold(v, "g", True) and not held.hold(v, "g", False)
    assert held.hold(w, "g", False) and held.hold(w, "h", False)
    assert not held.hold(w, "h", True)
    assert held.has(v) and not held.has([1])


def test_what_is_kept_elsewhere_is_told():
    v, w = [1], [1]
    held = given(v)
    assert held.kept({id(w)}.__contains__) is None
    refusal = held.kept({id(v)}.__contains__)
    assert refusal is not None and "f was given a list" in str(refusal)
