"""Each check of a guard program: where it holds, where it fails, and what it says.

Owns: the relative checks and the anchors of `csrc/interp` that need no torch.  Does not own: tensor
checks (`tests/guards`), dispatch (`test_dispatch.py`).  Runs on every supported CPython.
"""

from __future__ import annotations

import collections
import gc
import sys
import weakref
from typing import Any, NamedTuple

import pytest

from magpy import _interp

ABSENT = _interp.ABSENT


def guard(
    *checks: tuple[Any, ...],
    npos: int = 1,
    kwnames: tuple[str, ...] = (),
    nregs: int = 8,
    **anchors: Any,
) -> _interp.Guard:
    return _interp.Guard(npos, kwnames, nregs, list(checks), anchors)


class Plain:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


class Hostile:
    """Any use of its own methods is an error."""

    def __eq__(self, other: object) -> bool:
        raise AssertionError("__eq__ was called")

    def __hash__(self) -> int:
        raise AssertionError("__hash__ was called")

    def __len__(self) -> int:
        raise AssertionError("__len__ was called")

    def __bool__(self) -> bool:
        raise AssertionError("__bool__ was called")

    def __repr__(self) -> str:
        raise AssertionError("__repr__ was called")

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError("__getattribute__ was called")


class Kin(Plain):
    pass


class Pair(NamedTuple):
    a: Any
    b: Any


class Slotted:
    __slots__ = ("x",)


def make_cell(*value: Any) -> Any:
    if value:
        (x,) = value
    return (lambda: x).__closure__[0]


def plain_function(a: Any, b: Any = 1, *, c: Any = 2) -> Any:
    return a, b, c


def filled(*elements: Any) -> set[Any]:
    """A set that was filled one by one: 8 and 0 come in the order in which they were put there."""
    made: set[Any] = set()
    for element in elements:
        made.add(element)
    return made


NAN = float("nan")

LEAVES_EQUAL = [
    (5, 5),
    (10**30, 10**30),
    (1.5, float("1.5")),
    (NAN, float("nan")),
    (-0.0, -0.0),
    (complex(1, -0.0), complex(1, -0.0)),
    ("abc" * 9, "".join(["abc"] * 9)),
    (b"xy" * 9, bytes(bytearray(b"xy" * 9))),
    (None, None),
    (..., ...),
    (True, True),
    ((1, ("a", 2.0)), (1, ("a", 2.0))),
    (frozenset({1, "b", (2, 3)}), frozenset({1, "b", (2, 3)})),
    (frozenset(filled(8, 0)), frozenset(filled(8, 0))),
    (slice(1, None, 2), slice(1, None, 2)),
    (range(1, 10, 2), range(1, 10, 2)),
    (Pair(1, 2), Pair(1, 2)),
]
LEAVES_DIFFERENT = [
    (5, 6),
    (1, True),
    (1, 1.0),
    (0.0, -0.0),
    (complex(1, 0.0), complex(1, -0.0)),
    ("a", b"a"),
    ((1, 2), (1, 2, 3)),
    ((1,), (True,)),
    (frozenset({1}), frozenset({1.0})),
    (frozenset({1, 2}), frozenset({1, 3})),
    (frozenset(filled(8, 0)), frozenset(filled(0, 8))),
    (slice(1), slice(2)),
    (range(0), range(1, 1)),
    (Pair(1, 2), (1, 2)),
    (None, 0),
    (([],), ([],)),
]


@pytest.mark.parametrize(("a", "b"), LEAVES_EQUAL)
def test_leaf_equal_value_holds(a: Any, b: Any) -> None:
    assert guard(("leaf", 0, a)).check((b,))


@pytest.mark.parametrize(("a", "b"), LEAVES_DIFFERENT)
def test_leaf_other_value_fails_and_says_so(a: Any, b: Any) -> None:
    g = guard(("leaf", 0, a))
    assert not g.check((b,))
    where, text = g.explain((b,))
    assert where == 0
    assert text


def test_leaf_set_with_equal_hashes_compares_values() -> None:
    big = 2**61 - 1  # hashes like 0
    assert not guard(("leaf", 0, frozenset({0, 5}))).check((frozenset({big, 5}),))
    assert guard(("leaf", 0, frozenset(filled(0, big)))).check((frozenset(filled(0, big)),))
    assert not guard(("leaf", 0, frozenset(filled(0, big)))).check((frozenset(filled(big, 0)),))


def test_leaf_subclass_of_int_is_no_leaf() -> None:
    class Int(int):
        pass

    assert not guard(("leaf", 0, Int(3))).check((Int(3),))


def test_leaf_tuple_subclass_with_attributes_is_no_leaf() -> None:
    class Rich(tuple):
        pass

    assert not guard(("leaf", 0, Rich((1,)))).check((Rich((1,)),))


X = Plain()
ONE_LIST = [1, 2]
D = {"a": 1, "b": 2}
ORDERED = collections.OrderedDict(a=1, b=2)

# (check, the value that holds, values that do not)
SIMPLE: list[tuple[str, tuple[Any, ...], Any, list[Any]]] = [
    ("type", ("type", 0, list), [], [(), collections.OrderedDict(), Hostile()]),
    ("small_int", ("small_int", 0), 2**48 - 1, [2**48, -(2**48), 2**64, True, 1.0, Hostile()]),
    ("is", ("is", 0, X), X, [Plain(), Hostile(), None]),
    ("dict_get", ("dict_get", 1, 0, "a"), {"a": 1}, [{}, {"b": 1}, [], Hostile()]),
    ("dict_absent", ("dict_absent", 0, "a"), {"b": 1}, [{"a": 1}, [], Hostile()]),
    (
        "dict_keys",
        ("dict_keys", 0, ("a", 1)),
        {"a": 0, 1: 2},
        [{1: 2, "a": 0}, {"a": 0}, {"a": 0, 1: 1, 2: 2}, {"a": 0, 1.0: 2}, ()],
    ),
    (
        "ordered_keys",
        ("dict_keys", 0, ("a", "b")),
        ORDERED,
        [collections.OrderedDict(b=2, a=1), collections.OrderedDict(a=1)],
    ),
    ("inst_dict", ("inst_dict", 1, 0), Plain(a=1), [3, [], Slotted()]),
    ("attr", ("attr", 1, 0, "__class__"), Plain(), []),
    ("len_list", ("len", 0, 2), [1, 2], [[1], (1, 2, 3), 3, Hostile()]),
    ("len_dict", ("len", 0, 1), {"a": 1}, [{}, {"a": 1, "b": 2}]),
    ("len_set", ("len", 0, 1), {4}, [set(), frozenset((1, 2))]),
    ("len_str", ("len", 0, 3), "abc", ["ab"]),
    ("len_bytearray", ("len", 0, 3), bytearray(3), [bytearray(2)]),
    ("len_deque", ("len", 0, 1), collections.deque([1]), [collections.deque()]),
    ("item", ("item", 1, 0, 1), [1, 2], [[1], (), {1: 2}, Hostile()]),
    ("item_negative", ("item", 1, 0, -2), (1, 2), [(1,)]),
    (
        "set",
        ("set", 0, (8, 0, 1)),
        filled(8, 0, 1),
        [filled(8), filled(8, 0, 2), filled(8.0, 0, 1), [8, 0, 1], filled(0, 8, 1)],
    ),
    ("deque", ("deque", 1, 0, 2), collections.deque([1, 2]), [collections.deque([1]), [1, 2]]),
    ("deque_empty", ("deque", 1, 0, 0), collections.deque(), [collections.deque([1])]),
    ("cell", ("cell", 1, 0), make_cell(3), [make_cell(), 3]),
    ("cell_empty", ("cell_empty", 0), make_cell(), [make_cell(3), 3]),
    ("method", ("method", 1, 2, 0), X.__init__, [plain_function, 3]),
    ("py", ("py", lambda x: x > 3, (0,)), 4, [3, "a"]),
    ("py_truthy", ("py", lambda x: x, (0,)), True, [1, "a"]),
]


@pytest.mark.parametrize(
    ("check", "good", "bad"), [s[1:] for s in SIMPLE], ids=[s[0] for s in SIMPLE]
)
def test_check_holds_and_fails(check: tuple[Any, ...], good: Any, bad: list[Any]) -> None:
    g = guard(check)
    assert g.check((good,))
    assert g.explain((good,)) is None
    for value in bad:
        assert not g.check((value,))
        where, text = g.explain((value,))
        assert where == 0
        assert isinstance(text, str)
        assert text
    assert g.check((good,))


def test_registers_chain_loads() -> None:
    g = guard(
        ("dict_get", 1, 0, "list"),
        ("item", 2, 1, 0),
        ("type", 2, Plain),
        ("inst_dict", 3, 2),
        ("dict_get", 4, 3, "x"),
        ("leaf", 4, 7),
    )
    assert g.check(({"list": [Plain(x=7)]},))
    assert not g.check(({"list": [Plain(x=8)]},))
    assert g.explain(({"list": [Plain(x=8)]},)) == (5, "8 instead of 7")


@pytest.mark.parametrize(
    ("holder", "key", "found"),
    [
        ([7, 8, 9], 1, 8),
        ([7, 8, 9], -1, 9),
        ((7, 8), 0, 7),
        ([7], 1, None),
        ([7], -2, None),
        ([7], 1 << 80, None),
        ([7], -(1 << 80), None),
        ([7, 8], True, None),
        ([7], "a", None),
        ({"a": 7}, "a", 7),
        ({1: 7, 1 << 80: 8}, 1 << 80, 8),
        ({"a": 7}, "b", None),
        ({True: 7}, True, None),
        ({1.0: 7}, 1, 7),
        ({7}, 7, None),
    ],
)
def test_an_item_at_what_a_register_holds(holder: Any, key: Any, found: Any) -> None:
    checks = [("item_at", 2, 0, 1), ("leaf", 2, 7 if found is None else found)]
    g = _interp.Guard(2, (), 3, checks, {})
    assert g.check((holder, key)) is (found is not None)
    if found is None:
        where, text = g.explain((holder, key))
        assert where == 0 and text == f"no item {key!r}"


class Equal:
    """Code of the program says what it is equal to: no guard asks that."""

    def __eq__(self, other: object) -> bool:
        raise AssertionError

    def __hash__(self) -> int:
        raise AssertionError


@pytest.mark.parametrize("key", [object(), int, 1.5, (1, 2), Equal()])
def test_an_item_at_an_object_that_a_register_holds(key: Any) -> None:
    by_identity = type(key) is object or key is int
    d = {key: 7} if by_identity or isinstance(key, (float, tuple)) else {}
    g = _interp.Guard(2, (), 3, [("item_at", 2, 0, 1), ("leaf", 2, 7)], {})
    assert g.check((d, key)) is by_identity
    assert not g.check(({}, key))
    assert not g.check(({object(): 7}, key))


def test_deque_items_land_in_registers() -> None:
    g = guard(("deque", 1, 0, 2), ("leaf", 1, "a"), ("leaf", 2, "b"))
    assert g.check((collections.deque("ab"),))
    assert g.explain((collections.deque("ac"),)) == (2, "'c' instead of 'b'")


def test_method_parts_land_in_registers() -> None:
    g = guard(("method", 1, 2, 0), ("is", 1, Plain.__init__), ("is", 2, X))
    assert g.check((X.__init__,))
    assert not g.check((Plain().__init__,))


def test_anchored_operand_is_that_object() -> None:
    g = guard(("len", ("a", ONE_LIST), 2), ("same", 0, ("a", ONE_LIST)))
    assert g.check((ONE_LIST,))
    assert not g.check(([1, 2],))


def test_same_and_distinct() -> None:
    a, b = Plain(), Plain()
    assert guard(("same", 0, 1), npos=2).check((a, a))
    assert not guard(("same", 0, 1), npos=2).check((a, b))
    distinct = guard(("distinct", (0, 1), (X,)), npos=2)
    assert distinct.check((a, b))
    assert not distinct.check((a, a))
    assert not distinct.check((a, X))


def test_distinct_many_operands() -> None:
    n = 40
    g = guard(("distinct", tuple(range(n)), ()), npos=n, nregs=n)
    objects = [Plain() for _ in range(n)]
    assert g.check(tuple(objects))
    objects[3] = objects[37]
    assert not g.check(tuple(objects))


def test_attr_absent_slot() -> None:
    g = guard(("attr_absent", 0, "x"))
    s = Slotted()
    assert g.check((s,))
    s.x = 1
    assert not g.check((s,))


def test_attr_reads_slot() -> None:
    s = Slotted()
    g = guard(("attr", 1, 0, "x"), ("leaf", 1, 3))
    assert not g.check((s,))
    s.x = 3
    assert g.check((s,))


def test_func_compares_code_and_defaults() -> None:
    def make(n: int) -> Any:
        def inner(a: Any = n, *, b: Any = n) -> Any:
            return a, b

        return inner

    f = make(1)
    g = guard(("func", 0, f.__code__, f.__defaults__, f.__kwdefaults__))
    assert g.check((f,))
    assert not g.check((make(2),))
    assert not g.check((len,))
    bare = lambda: None  # noqa: E731
    assert guard(("func", 0, bare.__code__, None, None)).check((bare,))


def test_dict_get_key_by_identity_of_unhashable_user_equality() -> None:
    class Key:
        def __eq__(self, other: object) -> bool:
            raise AssertionError("__eq__ was called")

        def __hash__(self) -> int:
            return 7

    k = Key()
    g = guard(("dict_get", 1, 0, k))
    assert g.check(({k: 1},))
    assert not g.check(({8: 1},))
    assert not g.check(({Key(): 1},))  # equal hashes: the error of __eq__ means "does not hold"


def test_py_raising_means_does_not_hold() -> None:
    def fails(x: Any) -> bool:
        raise ValueError

    g = guard(("py", fails, (0,)))
    assert not g.check((1,))
    assert g.explain((1,))[0] == 0  # type: ignore[index]


def test_user_methods_are_never_called() -> None:
    h = Hostile()
    checks: list[tuple[Any, ...]] = [
        ("leaf", 0, 3),
        ("leaf", 0, (h,)),
        ("len", 0, 0),
        ("item", 1, 0, 0),
        ("set", 0, ()),
        ("dict_keys", 0, ()),
        ("dict_absent", 0, "x"),
        ("method", 1, 2, 0),
        ("func", 0, None, None, None),
        ("deque", 1, 0, 1),
        ("cell", 1, 0),
    ]
    for check in checks:
        g = guard(check)
        assert not g.check((h,))
        assert g.explain((h,)) is not None
    g = guard(("leaf", 0, (h, 1)))
    assert g.check(((h, 1),))
    assert not g.check(((h, 2),))
    assert g.explain(((h, 2),)) is not None


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((), None), ((1, 2), None), ((1,), {"k": 1}), ((), {"x": 1})],
)
def test_other_arguments_fail(args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> None:
    g = guard()
    assert not g.check(args, kwargs)
    where, _ = g.explain(args, kwargs)
    assert where == ("args", -1, -1)


def test_keyword_arguments_follow_positional_ones() -> None:
    g = guard(("leaf", 0, 1), ("leaf", 1, 2), ("leaf", 2, 3), kwnames=("a", "b"))
    assert g.check((1,), {"a": 2, "b": 3})
    assert not g.check((1,), {"b": 3, "a": 2})
    assert not g.check((1,), {"a": 2})


@pytest.mark.parametrize(
    "checks",
    [
        [("nonsense", 0)],
        [("type", 0)],
        [("type", 0, 3)],
        [("type", 5, int)],
        [("item", 0, 0, 0)],
        [("item", 1, 0, 0), ("item", 1, 0, 1)],
        [("item", -1, 0, 0)],
        [("leaf", "x", 0)],
        [3],
        [()],
        [("dict_get", 1, 0, [])],
        [("same", 0)],
    ],
)
def test_malformed_program_is_refused(checks: list[Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        _interp.Guard(1, (), 4, checks, {})


@pytest.mark.parametrize(
    "anchors",
    [
        {"nonsense": [(1,)]},
        {"dicts": [3]},
        {"dicts": [({}, [("a", 1, "maybe")])]},
        {"dicts": [([], [])]},
        {"types": [(3, [])]},
        {"cells": [(3, 1, "is")]},
        {"sets": [([], ())]},
        {"inst_dicts": [(X, {})]},
        {"lists": [((), ())]},
        {3: []},
    ],
)
def test_malformed_anchors_are_refused(anchors: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        _interp.Guard(0, (), 0, [], anchors)


# ------------------------------------------------ anchors


def anchored(**anchors: Any) -> _interp.Guard:
    return _interp.Guard(0, (), 0, [], anchors)


def holds(g: _interp.Guard) -> bool:
    """Twice, so that the cheap test answers too; and check and explain agree."""
    first, second = g.check(()), g.check(())
    assert first == second
    assert (g.explain(()) is None) == first
    return first


def test_dict_anchor_sees_change_and_change_back() -> None:
    d: dict[str, Any] = {"a": X, "n": 5}
    g = anchored(dicts=[(d, [("a", X, "is"), ("n", 5, "leaf"), ("gone", ABSENT, "is")])])
    assert holds(g)
    d["other"] = 1
    assert holds(g)
    d["n"] = int("5")
    assert holds(g)
    d["a"] = Plain()
    assert not holds(g)
    assert g.explain(())[0] == ("dicts", 0, 0)  # type: ignore[index]
    d["a"] = X
    assert holds(g)
    d["n"] = 6
    assert g.explain(()) == (("dicts", 0, 1), "key n is 6 instead of 5")
    assert not holds(g)
    d["n"] = 5
    d["gone"] = 1
    assert not holds(g)
    del d["gone"]
    assert holds(g)
    del d["a"]
    assert not holds(g)
    d["a"] = X
    assert holds(g)


CHANGES = {
    "setitem": lambda d: d.__setitem__("a", 2),
    "update": lambda d: d.update(a=2),
    "pop": lambda d: d.pop("a"),
    "del": lambda d: d.__delitem__("a"),
    "clear": lambda d: d.clear(),
    "popitem": lambda d: [d.popitem() for _ in range(len(d))],
    "ior": lambda d: d.__ior__({"a": 2}),
    "setdefault after pop": lambda d: (d.pop("a"), d.setdefault("a", 2)),
    "clear and update": lambda d: (d.clear(), d.update({"a": 2})),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize(
    "make",
    [
        dict,
        collections.OrderedDict,
        lambda x: collections.defaultdict(list, x),
        lambda x: Plain(**x).__dict__,
    ],
)
def test_dict_anchor_sees_every_way_to_change(change: Any, make: Any) -> None:
    d = make({"a": 1, "b": 2})
    g = anchored(dicts=[(d, [("a", 1, "is")])])
    assert holds(g)
    change(d)
    assert not holds(g)
    d["a"] = 1
    assert holds(g)


def store(o: Any, value: Any) -> None:
    o.x = value


def delete(o: Any) -> None:
    del o.x


def increment(o: Any) -> None:
    o.x += 1


@pytest.mark.parametrize("warm", [0, 200], ids=["cold", "specialized"])
@pytest.mark.parametrize("early", [True, False], ids=["dict first", "dict late"])
def test_instance_dict_anchor_sees_attribute_stores(warm: int, early: bool) -> None:
    class Local:
        def __init__(self) -> None:
            self.w = self.x = 1
            self.y = 2

    o = Local()
    for _ in range(warm):
        fresh = Local()
        store(fresh, 1)
        increment(fresh)
        delete(fresh)
        if early:
            fresh2 = Local()
            assert fresh2.__dict__
            store(fresh2, 1)
            increment(fresh2)
    d = o.__dict__
    g = anchored(dicts=[(d, [("x", 1, "is"), ("z", ABSENT, "is")])], inst_dicts=[(o, d)])
    assert holds(g)
    o.y = 3
    assert holds(g)
    store(o, 2)
    assert not holds(g)
    store(o, 1)
    assert holds(g)
    increment(o)
    assert not holds(g)
    store(o, 1)
    assert holds(g)
    delete(o)
    assert not holds(g)
    setattr(o, "x", 1)  # noqa: B010
    assert holds(g)
    object.__setattr__(o, "z", 1)
    assert not holds(g)
    delattr(o, "z")  # noqa: B043
    assert holds(g)


def test_instance_dict_replaced_is_seen() -> None:
    o = Plain(a=1)
    g = anchored(inst_dicts=[(o, o.__dict__)], objtypes=[(o, Plain)])
    assert holds(g)
    old = o.__dict__
    o.__dict__ = {"a": 1}
    assert not holds(g)
    assert g.explain(()) == (("inst_dicts", 0, -1), "__dict__ was replaced")
    o.__dict__ = old
    assert holds(g)


def test_class_of_object_changed_is_seen() -> None:
    class Other(Plain):
        pass

    o = Plain()
    g = anchored(objtypes=[(o, Plain)])
    assert holds(g)
    o.__class__ = Other
    assert not holds(g)
    assert g.explain(())[0] == ("objtypes", 0, -1)  # type: ignore[index]


def test_object_anchored_many_times() -> None:
    class Other(Plain):
        pass

    a, b = Plain(x=1), Plain(x=2)
    g = anchored(
        objtypes=[(b, Plain), (a, Plain), (b, Plain), (a, Plain)],
        inst_dicts=[(b, b.__dict__), (a, a.__dict__), (a, a.__dict__)],
    )
    assert holds(g)
    a.__class__ = Other
    assert not holds(g)
    assert g.explain(())[0] == ("objtypes", 1, -1)  # type: ignore[index]
    a.__class__ = Plain
    assert holds(g)
    old, a.__dict__ = a.__dict__, {}
    assert g.explain(())[0] == ("inst_dicts", 1, -1)  # type: ignore[index]
    assert not holds(g)
    a.__dict__ = old
    assert holds(g)
    # An object is never of two classes.
    assert not holds(anchored(objtypes=[(a, Plain), (a, Other), (a, Plain)]))


def test_module_globals_anchor() -> None:
    import types

    module = types.ModuleType("m")
    exec("y = 1\ndef f():\n    global y\n    y += 1", module.__dict__)
    g = anchored(dicts=[(module.__dict__, [("y", 1, "leaf")])])
    assert holds(g)
    module.f()
    assert not holds(g)
    module.y = 1  # type: ignore[attr-defined]
    assert holds(g)


def test_one_dict_in_many_guards() -> None:
    d = {"a": 1}
    guards = [anchored(dicts=[(d, [("a", i, "is")])]) for i in (1, 2, 1)]
    assert [holds(g) for g in guards] == [True, False, True]
    d["a"] = 2
    assert [holds(g) for g in guards] == [False, True, False]
    del guards[0]
    d["a"] = 1
    assert [holds(g) for g in guards] == [False, True]


def test_one_dict_twice_in_a_guard() -> None:
    d = {"a": 1, "b": 2}
    many: list[Any] = [({str(i): i}, [(str(i), i, "is")]) for i in range(20)]
    g = anchored(dicts=[(d, [("a", 1, "is")]), *many, (d, [("b", 2, "is")])])
    assert holds(g)
    d["b"] = 3
    assert not holds(g)
    assert g.explain(())[0] == ("dicts", 21, 0)  # type: ignore[index]


def test_dict_keys_anchor_sees_order() -> None:
    d = {"a": 1, "b": 2}
    g = anchored(dict_keys=[(d, ("a", "b"))])
    assert holds(g)
    d["a"] = 9
    assert holds(g)
    d["a"] = d.pop("a")
    assert not holds(g)


def test_ordered_dict_keys_anchor_sees_move_to_end() -> None:
    d = collections.OrderedDict(a=1, b=2)
    g = anchored(dict_keys=[(d, ("a", "b"))])
    assert holds(g)
    d.move_to_end("a")
    assert not holds(g)
    d.move_to_end("b")
    assert holds(g)


def test_type_anchor_sees_class_and_base_changes() -> None:
    class Base:
        x = 1

    class Derived(Base):
        pass

    g = anchored(types=[(Derived, [("x", 1), ("y", ABSENT)])])
    assert holds(g)
    Derived.z = 3  # type: ignore[attr-defined]
    assert holds(g)
    Base.x = 2
    assert not holds(g)
    assert g.explain(()) == (("types", 0, 0), "class attribute x is 2 instead of 1")
    Base.x = 1
    assert holds(g)
    Derived.y = 1  # type: ignore[attr-defined]
    assert not holds(g)
    del Derived.y  # type: ignore[attr-defined]
    assert holds(g)

    class Mixin:
        x = 7

    Derived.__bases__ = (Mixin, Base)
    assert not holds(g)


def test_type_anchor_survives_many_changes() -> None:
    # CPython 3.13 gives one class 1000 versions; after that the check is precise every time.
    class Local:
        x = 0

    g = anchored(types=[(Local, [("x", 1)])])
    for i in range(3000):
        Local.x = i % 2
        assert g.check(()) == (i % 2 == 1)
    assert holds(g)


def test_super_anchor() -> None:
    class A:
        def f(self) -> int:
            return 1

    class B(A):
        def f(self) -> int:
            return 2

    class C(B):
        pass

    f = A.f
    g = anchored(supers=[(C, B, "f", f), (C, B, "nothing", ABSENT)])
    assert holds(g)
    A.f = lambda self: 3  # type: ignore[method-assign, assignment]
    assert not holds(g)
    assert g.explain(())[0] == ("supers", 0, -1)  # type: ignore[index]
    A.f = f  # type: ignore[method-assign]
    assert holds(g)
    A.nothing = 1  # type: ignore[attr-defined]
    assert not holds(g)


def test_list_anchor() -> None:
    items = [X, 2, "s"]
    g = anchored(lists=[(items, (X, 2, "s"))])
    assert holds(g)
    items[1] = 3
    assert g.explain(()) == (("lists", 0, 1), "item 1 is 3 instead of 2")
    assert not holds(g)
    items[1] = 2
    items.append(1)
    assert not holds(g)
    items.pop()
    assert holds(g)
    items[0] = Plain()
    assert not holds(g)


def test_set_anchor() -> None:
    s = {1, "a", X}
    g = anchored(sets=[(s, tuple(s))])
    assert holds(g)
    s.add(2)
    assert not holds(g)
    s.remove(2)
    assert holds(g)
    s.remove(X)
    s.add(Plain())
    assert not holds(g)


def replace_element(s: set[Any]) -> None:
    """Another element where one was, in a set of the same size."""
    s.remove(8)
    s.add(8 + 64 * 64)  # the same place in every table up to 4096


SET_CHANGES = {
    "add": lambda s: s.add("other"),
    "discard": lambda s: s.discard(3),
    "replace": replace_element,
    "exchange": lambda s: (s.remove(X), s.add(Plain())),
    "pop": lambda s: s.pop(),
    "clear": lambda s: s.clear(),
    "clear and update": lambda s: (s.clear(), s.update(range(40))),
    "ior": lambda s: s.__ior__({"other"}),
    "ixor": lambda s: s.__ixor__({3, "other"}),
    "isub": lambda s: s.__isub__({3}),
    "iand": lambda s: s.__iand__({3}),
    "init": lambda s: s.__init__(range(40)),
    "symmetric difference": lambda s: s.symmetric_difference_update({3, 4, 1000, 1001}),
}


@pytest.mark.parametrize("change", SET_CHANGES.values(), ids=SET_CHANGES)
@pytest.mark.parametrize("others", [0, 30])
def test_set_anchor_sees_every_way_to_change(change: Any, others: int) -> None:
    elements = [X, "a", None, (1, 2), 3, 4, 8, *range(100, 100 + others)]
    s = set(elements)
    order = tuple(s)
    g = anchored(sets=[(s, order)])
    for _ in range(3):
        assert g.check(())
    change(s)
    assert not holds(g)
    s.clear()
    s.update(elements)
    assert holds(g) is (tuple(s) == order)
    # Another table: what is found at the old places means nothing there.
    s.update(range(10_000, 11_000))
    assert not holds(g)
    s.difference_update(range(10_000, 11_000))
    assert holds(g) is (tuple(s) == order)
    change(s)
    assert not holds(g)


def test_set_anchor_equal_elements_that_are_other_objects() -> None:
    s: set[Any] = {"".join(["le", "af"]), 12345}
    others = {"leaf": "".join(["lea", "f"]), 12345: int("12345")}
    g = anchored(sets=[(s, tuple(others[v] for v in s))])
    for _ in range(3):
        assert g.check(())
    s.remove("leaf")
    s.add("leaf 2")
    assert not holds(g)


def test_set_anchor_sees_another_order() -> None:
    s = filled(8, 0)
    g = anchored(sets=[(s, (8, 0))])
    for _ in range(3):
        assert g.check(())
    s.clear()
    s.update([0, 8])
    assert not holds(g)
    s.clear()
    s.update([8, 0])
    assert holds(g)


def test_cell_anchor() -> None:
    cell = make_cell(3)
    empty = make_cell()
    g = anchored(cells=[(cell, 3, "leaf"), (empty, ABSENT, "is")])
    assert holds(g)
    cell.cell_contents = 4
    assert g.explain(())[0] == ("cells", 0, -1)  # type: ignore[index]
    assert not holds(g)
    cell.cell_contents = 3
    assert holds(g)
    empty.cell_contents = 1
    assert not holds(g)


def test_function_anchor() -> None:
    def f(a: int = 1) -> int:
        return a

    g = anchored(funcs=[(f, f.__code__, f.__defaults__, f.__kwdefaults__)])
    assert holds(g)
    f.__defaults__ = (2,)
    assert g.explain(())[1].endswith("changed")  # type: ignore[index]
    assert not holds(g)
    h = anchored(funcs=[(f, f.__code__, f.__defaults__, None)])
    assert holds(h)
    f.__code__ = (lambda a: a).__code__
    assert not holds(h)


def test_attr_anchor() -> None:
    s = Slotted()
    s.x = 5
    g = anchored(attrs=[(s, "x", 5, "leaf")])
    assert holds(g)
    s.x = 6
    assert not holds(g)
    del s.x
    assert not holds(g)
    assert holds(anchored(attrs=[(s, "x", ABSENT, "is")]))


def slotted_property(s: Any) -> None:
    Slotted.x = property(lambda self: 7)  # type: ignore[assignment,method-assign]


def slotted_getattr(s: Any) -> None:
    Slotted.__getattribute__ = lambda self, name: 7  # type: ignore[assignment]


SLOT_CHANGES = {
    "setattr": lambda s: setattr(s, "x", 6),
    "object.__setattr__": lambda s: object.__setattr__(s, "x", 6),
    "descriptor": lambda s: Slotted.__dict__["x"].__set__(s, 6),
    "delattr": lambda s: delattr(s, "x"),
    "property in the class": slotted_property,
    "__getattribute__ in the class": slotted_getattr,
}


@pytest.mark.parametrize("change", SLOT_CHANGES.values(), ids=SLOT_CHANGES)
@pytest.mark.parametrize("value", [5, X], ids=["leaf", "object"])
def test_slot_anchor_sees_every_way_to_change(change: Any, value: Any) -> None:
    descriptor = Slotted.__dict__["x"]
    s = Slotted()
    s.x = value
    g = anchored(attrs=[(s, "x", value, "is" if value is X else "leaf")])
    for _ in range(3):
        assert g.check(())
    try:
        change(s)
        assert not g.check(())
        assert g.explain(()) is not None
    finally:
        if "__getattribute__" in vars(Slotted):
            del Slotted.__getattribute__
        Slotted.x = descriptor  # type: ignore[method-assign]
    s.x = value
    assert holds(g)
    assert g.check(())
    s.x = 6
    assert not holds(g)


def test_slot_anchor_sees_another_class() -> None:
    class A:
        __slots__ = ("x",)

    class B(A):
        __slots__ = ()
        x = 7  # type: ignore[assignment]

    class C(A):
        __slots__ = ()

    s = C()
    s.x = 5
    g = anchored(attrs=[(s, "x", 5, "leaf")])
    for _ in range(3):
        assert g.check(())
    s.__class__ = B  # type: ignore[assignment]
    assert not holds(g)
    s.__class__ = C
    assert holds(g)


def test_slot_anchor_of_what_is_missing_and_of_none() -> None:
    s = Slotted()
    empty = anchored(attrs=[(s, "x", ABSENT, "is")])
    none = anchored(attrs=[(plain_function, "__doc__", plain_function.__doc__, "leaf")])
    for _ in range(3):
        assert empty.check(())
        assert none.check(())
    s.x = None
    assert not holds(empty)
    del s.x
    assert holds(empty)
    before = plain_function.__doc__
    try:
        plain_function.__doc__ = "something else"
        assert not holds(none)
        del plain_function.__doc__
        assert none.check(()) == (before is None)
    finally:
        plain_function.__doc__ = before
    assert holds(none)


@pytest.mark.parametrize("at", [0, 63, 64, 130, 199])
def test_many_dicts_and_objects_one_changed(at: int) -> None:
    objects = [Plain(x=i) for i in range(200)]
    g = anchored(
        dicts=[(o.__dict__, [("x", i, "leaf")]) for i, o in enumerate(objects)],
        objtypes=[(o, Plain) for o in objects],
        inst_dicts=[(o, o.__dict__) for o in objects[::2]],
    )
    for _ in range(3):
        assert g.check(())
    o = objects[at]
    for change, back in (
        (lambda: o.__dict__.update(x=-1), lambda: o.__dict__.update(x=at)),
        (lambda: setattr(o, "x", -1), lambda: setattr(o, "x", at)),
        (lambda: setattr(o, "__class__", Kin), lambda: setattr(o, "__class__", Plain)),
    ):
        change()
        assert not holds(g)
        assert not holds(g)
        # Changes that do not matter, elsewhere: they must not make up for the one that does.
        for other in objects[at + 1 :: 7]:
            other.unrelated = 1  # type: ignore[attr-defined]
        assert not holds(g)
        back()
        assert holds(g)
        assert g.check(())
    for other in objects:
        other.more = at  # type: ignore[attr-defined]
    assert holds(g)


def test_ordered_dict_among_many_is_always_looked_at() -> None:
    order = collections.OrderedDict(a=1, b=2)
    others = [{"x": i} for i in range(100)]
    g = anchored(
        dicts=[(d, [("x", i, "leaf")]) for i, d in enumerate(others)],
        dict_keys=[(order, ("a", "b"))],
    )
    for _ in range(3):
        assert g.check(())
    order.move_to_end("a")
    assert not holds(g)
    order.move_to_end("b")
    assert holds(g)
    others[50]["x"] = -1
    assert not holds(g)


def test_redo_anchor() -> None:
    values = [1]
    g = anchored(redo=[(values.count, (1,), 1, "leaf")])
    assert holds(g)
    values.append(1)
    assert not holds(g)
    assert g.explain(())[0] == ("redo", 0, -1)  # type: ignore[index]
    values.pop()
    assert holds(g)
    assert not holds(anchored(redo=[(int, ("x",), 1, "leaf")]))


def test_state_anchor_refuses_other_objects() -> None:
    with pytest.raises((TypeError, ImportError)):
        anchored(state=3)
    assert holds(anchored(state=None))


def test_explain_reports_first_in_given_order() -> None:
    dicts = [{"k": i} for i in range(50)]
    g = anchored(dicts=[(d, [("k", i, "is")]) for i, d in enumerate(dicts)])
    for d in dicts[7:]:
        d["k"] = -1
    assert g.explain(())[0] == ("dicts", 7, 0)  # type: ignore[index]


def test_user_values_are_never_compared_or_printed() -> None:
    h = Hostile()
    d: dict[str, Any] = {"a": h}
    g = anchored(dicts=[(d, [("a", h, "leaf")])], lists=[([h], (h,))])
    assert holds(g)
    d["a"] = Hostile()
    assert not holds(g)


# ------------------------------------------------ memory


def test_guard_and_its_cycle_are_collected() -> None:
    class Model:
        pass

    def build() -> weakref.ref[Any]:
        m = Model()
        m.guard = _interp.Guard(  # type: ignore[attr-defined]
            1,
            (),
            4,
            [("is", 0, m), ("same", 0, ("a", m))],
            {
                "dicts": [(m.__dict__, [("guard", ABSENT, "is")])],
                "objtypes": [(m, Model)],
                "lists": [([m], (m,))],
            },
        )
        m.guard.check((m,))  # type: ignore[attr-defined]
        return weakref.ref(m)

    ref = build()
    gc.collect()
    assert ref() is None


def test_changing_a_dict_after_its_guard_died_is_safe() -> None:
    d = {"a": 1}
    g = anchored(dicts=[(d, [("a", 1, "is")])])
    assert holds(g)
    del g
    gc.collect()
    d["a"] = 2
    d.clear()


def test_checks_leak_nothing() -> None:
    class Local:
        x = 1

    o = Local()
    o.y = Plain()  # type: ignore[attr-defined]
    tracked = [Local, o, o.__dict__, o.y, X, plain_function, ONE_LIST]  # type: ignore[attr-defined]

    def run() -> None:
        g = guard(
            ("inst_dict", 1, 0),
            ("dict_get", 2, 1, "y"),
            ("is", 2, o.y),  # type: ignore[attr-defined]
            ("attr", 3, 0, "__class__"),
            ("py", lambda a: True, (0,)),
            ("len", ("a", ONE_LIST), 2),
            ("leaf", ("a", 3), 4),
            dicts=[(o.__dict__, [("y", o.y, "is"), ("q", ABSENT, "leaf")])],  # type: ignore[attr-defined]
            types=[(Local, [("x", 1)])],
            objtypes=[(o, Local)],
            funcs=[
                (
                    plain_function,
                    plain_function.__code__,
                    plain_function.__defaults__,
                    plain_function.__kwdefaults__,
                )
            ],
            redo=[(len, (ONE_LIST,), 2, "leaf")],
        )
        for _ in range(10):
            g.check((o,))
            g.explain((o,))
        with pytest.raises(ValueError, match="unknown"):
            guard(("is", 0, X), ("nonsense", 0))

    run()
    gc.collect()
    before = [sys.getrefcount(t) for t in tracked]
    for _ in range(50):
        run()
    gc.collect()
    after = [sys.getrefcount(t) for t in tracked]
    assert after == before


def test_guard_inside_its_own_check_is_safe() -> None:
    d = {"a": 1}
    guards: list[Any] = []

    def again() -> int:
        d["other"] = d.get("other", 0) + 1
        if d["other"] < 5:
            guards[0].check(())
        return 1

    guards.append(anchored(dicts=[(d, [("a", 1, "is")])], redo=[(again, (), 1, "leaf")]))
    assert guards[0].check(())
    assert d["other"] >= 5


def test_a_key_is_looked_up_without_its_own_eq() -> None:
    asked = []

    class Key:
        def __eq__(self, other: object) -> bool:
            asked.append(other)
            return True

        def __hash__(self) -> int:
            return 1

    a, b = Key(), Key()
    d: dict[Any, Any] = {}
    for k, v in ((a, 1), ((1, b), 2)):
        d[k] = v
    del asked[:]
    g = guard(("dict_get", 1, 0, a), ("leaf", 1, 1))
    anchored = guard(npos=0, dicts=[(d, [(a, 1, "leaf")])])
    assert g.check((d,))
    assert anchored.check(())
    assert not g.check(({b: 1},))  # an equal one is another
    assert not guard(("dict_get", 1, 0, (1, b))).check(({(1, a): 2},))
    assert asked == []
    d[a] = 3
    assert not g.check((d,))
    assert not anchored.check(())


def test_a_gradient_needs_torch() -> None:
    try:
        g = guard(("gradient", 1, 0))
    except (ImportError, RuntimeError):
        return  # there is no torch where csrc/interp is tested alone
    assert not g.check((1,))
