"""The reference graph of hand-written logs: no program runs."""

import collections
import gc
import operator
import re
import types
import weakref
from pathlib import Path

import pytest
import torch

import magpy
from magpy import _interp
from magpy.errors import Refusal
from magpy.guards import draw, edges
from magpy.guards.analysis import analyze
from magpy.guards.checks import ABSENT
from magpy.guards.graph import build
from magpy.guards.world import Run, World
from magpy.ir.capture import Capture
from magpy.ir.ops import Record

CSRC = Path(magpy.__file__).parents[1] / "csrc" / "interp"


class Plain:
    """An object with a `__dict__`."""


class Slotted:
    """An object with a slot."""

    __slots__ = ("__weakref__", "x")


def graph_of(log, *args, f=None, world=None, kwargs=None, **known):
    return build(Run(log, f, args, kwargs or {}, **known), world)


def labels(graph):
    return [edge.label() for edge, _ in graph.edges]


def names(graph):
    return [check[0] for check in graph.checks]


def guard_of(graph):
    anchors = dict(graph.records)
    anchors.update((section, list(group.values())) for section, group in graph.groups.items())
    anchors["state"] = None
    run = graph.run
    return _interp.Guard(len(run.args), tuple(run.kwargs), graph.nregs, graph.checks, anchors)


def assert_expressions_reach_the_objects(graph):
    known = {**graph.constants, **{f"_a{i}": v for i, v in enumerate(graph.run.args)}}
    known.update((f"_k{i}", v) for i, v in enumerate(graph.run.kwargs.values()))
    for found in graph.relative.values():
        assert eval(found.expr, dict(known)) is found.obj


# ------------------------------------------------------------- the registry


def test_every_event_that_the_session_can_emit_has_a_class():
    text = (CSRC / "session_impl.h").read_text()
    listed = re.search(r"kKindNames\[\]\s*=\s*\{([^}]*)\}", text)
    events = re.findall(r'"(\w+)"', listed.group(1))
    assert "dict_key" in events
    for event in events:
        assert issubclass(edges.class_of_event(event), edges.Edge)


def test_every_event_that_python_adds_to_the_log_has_a_class():
    for event in ("dict_has", "type_itself", "identity"):
        assert edges.class_of_event(event).is_read


def test_an_unknown_event_is_an_error():
    with pytest.raises(ValueError, match="'telepathy'"):
        graph_of([("telepathy", {}, None, None)])


def test_an_event_has_one_class():
    with pytest.raises(ValueError, match="'cell' has the class Cell"):

        class Other(edges.Edge, events=("cell",)):
            pass

    assert edges.class_of_event("cell") is edges.Cell


def test_every_edge_has_a_label_and_words():
    classes = [c for c in vars(edges).values() if isinstance(c, type) and issubclass(c, edges.Edge)]
    classes = [c for c in classes if c not in (edges.Edge, edges.Load)]
    assert len(classes) > 15
    for cls in classes:
        edge = cls([1], ("key", "name"), 2)
        assert edge.label()
        assert edge.words()


@pytest.mark.parametrize("cls", [edges.DictKey, edges.Attribute, edges.Cell, edges.Item])
def test_the_native_guard_knows_the_checks_of_each_load(cls):
    edge = cls([1], 0 if cls is edges.Item else "key", 2)
    checks = [edge.load(1, 0)]
    if cls is not edges.Item:  # whose length is checked before
        checks.append(edge.absent(0))
    guard = _interp.Guard(1, (), 2, checks, {})
    assert not guard.check((3,))


# ------------------------------------------------------------- relative roots


def test_an_attribute_of_an_argument_is_read_again():
    obj, held = Plain(), [1]
    obj.x, obj.n = held, 3
    d = vars(obj)
    graph = graph_of(
        [
            ("object", obj, None, None),
            ("link_dict", obj, None, d),
            ("dict_key", d, "x", held),
            ("dict_key", d, "n", 3),
        ],
        obj,
    )
    assert graph.checks == [
        ("type", 0, Plain),
        ("inst_dict", 1, 0),
        ("dict_get", 2, 1, "x"),
        ("type", 2, list),
        ("dict_get", 3, 1, "n"),
        ("leaf", 3, 3),
    ]
    assert labels(graph) == ["arg 0", "callable", "__dict__", "x", "n"]
    assert graph.relative[id(held)].expr == "_a0.__dict__['x']"
    assert_expressions_reach_the_objects(graph)
    guard = guard_of(graph)
    assert guard.check((obj,))
    other = Plain()
    other.x, other.n = [], 3
    assert guard.check((other,))
    other.n = 4
    assert not guard.check((other,))


def test_each_read_knows_the_checks_that_it_became():
    obj = Plain()
    obj.x = (1, 2)
    d = vars(obj)
    graph = graph_of([("link_dict", obj, None, d), ("dict_key", d, "x", obj.x)], obj)
    of = {edge.label(): [check[0] for check in checks] for edge, checks in graph.edges}
    assert of["x"] == ["dict_get", "leaf"]
    assert of["arg 0"] == ["type"]
    assert of["__dict__"] == ["inst_dict"]


def test_keyword_arguments_follow_the_positional_ones():
    graph = graph_of([], [1], kwargs={"a": {}, "b": 5})
    assert graph.checks == [("type", 0, list), ("type", 1, dict), ("leaf", 2, 5)]
    assert [found.expr for found in graph.relative.values()] == ["_a0", "_k0"]
    assert labels(graph) == ["arg 0", "arg a", "arg b", "callable"]


def test_an_object_reached_by_two_paths_is_the_same_in_every_call():
    t = [0]
    first, second = [t], {"t": t}
    graph = graph_of([("snap", first, None, (t,)), ("dict_key", second, "t", t)], first, second)
    assert graph.checks == [
        ("type", 0, list),
        ("type", 1, dict),
        ("len", 0, 1),
        ("item", 2, 0, 0),
        ("type", 2, list),
        ("dict_get", 3, 1, "t"),
        ("same", 3, 2),
    ]
    assert graph.relative[id(t)].expr == "_a0[0]"
    guard = guard_of(graph)
    assert guard.check((first, second))
    assert not guard.check(([[0]], {"t": [0]}))


def test_a_cycle_is_walked_once():
    a, b = Plain(), Plain()
    a.next, b.next = b, a
    log = []
    for obj in (a, b):
        log += [
            ("link_dict", obj, None, vars(obj)),
            ("dict_key", vars(obj), "next", obj.next),
        ]
    graph = graph_of(log, a)
    assert names(graph) == [
        "type",
        "inst_dict",
        "dict_get",
        "type",
        "inst_dict",
        "dict_get",
        "same",
    ]
    assert graph.checks[-1] == ("same", 4, 0)
    assert_expressions_reach_the_objects(graph)
    alone = Plain()
    alone.next = Plain()
    alone.next.next = alone.next
    assert guard_of(graph).check((a,))
    assert not guard_of(graph).check((alone,))


def test_an_absent_value_must_stay_absent():
    obj, d, cell = Slotted(), {}, types.CellType()
    graph = graph_of(
        [
            ("attr_c", obj, "x", ABSENT),
            ("dict_key", d, "k", ABSENT),
            ("cell", cell, None, ABSENT),
        ],
        obj,
        d,
        cell,
    )
    assert graph.checks[3:] == [("attr_absent", 0, "x"), ("dict_absent", 1, "k"), ("cell_empty", 2)]
    guard = guard_of(graph)
    assert guard.check((Slotted(), {"other": 1}, types.CellType()))
    assert not guard.check((Slotted(), {"k": 1}, types.CellType()))


def test_slots_and_cells_are_read_again():
    obj, content = Slotted(), []
    obj.x = cell = types.CellType(content)
    graph = graph_of([("attr_c", obj, "x", cell), ("cell", cell, None, content)], obj)
    assert graph.checks[1:] == [
        ("attr", 1, 0, "x"),
        ("type", 1, types.CellType),
        ("cell", 2, 1),
        ("type", 2, list),
    ]
    assert graph.relative[id(content)].expr == "_a0.x.cell_contents"
    assert labels(graph)[2:] == [".x", "cell"]
    assert_expressions_reach_the_objects(graph)
    assert guard_of(graph).check((obj,))


def test_keys_are_written_down_or_named():
    held, key, large = [], 1.5, 1 << 70
    d = {"a": held, key: [], large: []}
    graph = graph_of([("dict_key", d, k, v) for k, v in d.items()], d)
    assert graph.relative[id(held)].expr == "_a0['a']"
    assert graph.relative[id(d[key])].expr == "_a0[_d0]"
    assert graph.relative[id(d[large])].expr == "_a0[_d1]"
    assert_expressions_reach_the_objects(graph)


def test_items_of_subclasses_are_read_whatever_they_say():
    d, items = collections.OrderedDict(a=[]), type("L", (list,), {})([[]])
    graph = graph_of([("dict_key", d, "a", d["a"]), ("snap", items, None, (items[0],))], d, items)
    assert graph.relative[id(d["a"])].expr == "dict.__getitem__(_a0, 'a')"
    assert graph.relative[id(items[0])].expr == "list.__getitem__(_a1, 0)"


def test_the_contents_of_a_dict_are_its_keys_in_order_and_their_values():
    d = {"a": 1, "b": []}
    graph = graph_of([("snap", d, None, dict(d))], d)
    assert graph.checks[1:] == [
        ("dict_keys", 0, ("a", "b")),
        ("dict_get", 1, 0, "a"),
        ("leaf", 1, 1),
        ("dict_get", 2, 0, "b"),
        ("type", 2, list),
    ]
    assert not guard_of(graph).check(({"b": [], "a": 1},))


def test_contents_are_guarded_once():
    items = [1, 2]
    event = ("snap", items, None, (1, 2))
    assert graph_of([event, event], items).checks == graph_of([event], items).checks


def test_a_tuple_is_looked_into_at_once():
    inner = []
    graph = graph_of([], (1, inner))
    assert graph.checks == [
        ("type", 0, tuple),
        ("len", 0, 2),
        ("item", 1, 0, 0),
        ("leaf", 1, 1),
        ("item", 2, 0, 1),
        ("type", 2, list),
    ]
    assert graph.relative[id(inner)].expr == "_a0[1]"


def test_a_method_is_its_function_and_its_object():
    obj = Plain()
    method = types.MethodType(len, obj)
    graph = graph_of([], method)
    assert graph.checks == [("method", 1, 2, 0), ("is", 1, len), ("type", 2, Plain)]
    assert graph.relative[id(obj)].expr == "_a0.__self__"
    assert [label for label in labels(graph) if label != "callable"] == [
        "arg 0",
        ".__func__",
        ".__self__",
    ]


def test_one_element_of_a_list_counts_unless_the_list_is_looked_at_as_a_whole():
    items = [[], []]
    element = ("list_item", items, -1, items[1])
    graph = graph_of([element], items)
    assert graph.checks[1:] == [("item", 1, 0, -1), ("type", 1, list)]
    assert graph.relative[id(items[1])].expr == "_a0[-1]"
    whole = graph_of([element, ("snap", items, None, tuple(items))], items)
    assert names(whole)[1:] == ["len", "item", "type", "item", "type"]


def test_an_element_at_a_number_that_is_an_argument():
    items, number = [[], [1]], 1
    graph = graph_of(
        [("value_at", items, number, items[1])], items, number, numbers=frozenset([id(number)])
    )
    assert graph.checks == [
        ("type", 0, list),
        ("small_int", 1),
        ("item_at", 2, 0, 1),
        ("type", 2, list),
    ]
    assert graph.relative[id(items[1])].expr == "_a0[_a1]"
    assert guard_of(graph).check((items, 0))
    assert not guard_of(graph).check((items, 2))
    assert not guard_of(graph).check(([1, 2], 0))


def test_an_element_at_a_number_that_is_read_of_something_else():
    holder, items, number = {"i": 1}, {"a": [], 1: [1]}, _interp.fresh(1)
    held = {id(number): (number, operator.getitem, holder, "i")}
    graph = graph_of([("value_at", items, number, items[1])], holder, items, held_numbers=held)
    assert graph.checks == [
        ("type", 0, dict),
        ("type", 1, dict),
        ("dict_get", 2, 0, "i"),
        ("small_int", 2),
        ("item_at", 3, 1, 2),
        ("type", 3, list),
    ]
    assert graph.relative[id(items[1])].expr == "_a1[_a0['i']]"
    twice = [("value_at", items, number, items[1])] * 2
    assert names(graph_of(twice, holder, items, held_numbers=held))[-2:] == ["item_at", "same"]
    with pytest.raises(Refusal, match="an item of a dict is read at an input"):
        graph_of([("value_at", items, number, items[1])], holder, items)


def test_a_set_keeps_its_elements():
    elements = {1, 2}
    graph = graph_of([("snap", elements, (1, 2), {1, 2})], elements)
    assert graph.checks[1:] == [("set", 0, (1, 2))]
    assert guard_of(graph).check(({2, 1},))
    assert not guard_of(graph).check(({1, 3},))


def test_a_deque_keeps_its_elements_and_how_many_it_takes():
    class Seven(World):
        def maxlen(self, d):
            return 7

    d = collections.deque([[]], 7)
    graph = graph_of([("snap", d, None, (d[0],))], d, world=Seven())
    assert names(graph) == ["type", "py", "len", "deque", "type"]
    assert ".maxlen" in labels(graph)
    assert graph.relative[id(d[0])].expr == "_a0[0]"
    assert guard_of(graph).check((collections.deque([[]], 7),))
    assert not guard_of(graph).check((collections.deque([[]], 8),))


def test_the_factory_of_a_defaultdict_is_the_one_from_before_the_run():
    class Answers(World):
        def default_factory(self, d):
            return set

    d = collections.defaultdict(int)
    read = ("dict_key", d, "k", ABSENT)
    checks = graph_of([read], d, world=Answers()).checks
    assert checks[1:3] == [("attr", 1, 0, "default_factory"), ("is", 1, set)]
    written = graph_of([("write_attr", d, "default_factory", list), read], d, world=Answers())
    assert written.checks[2] == ("is", 1, list)


def test_a_class_that_the_run_replaced_is_the_one_from_before():
    obj = Plain()
    graph = graph_of([("write_attr", obj, "__class__", Slotted)], obj)
    assert graph.checks == [("type", 0, Slotted)]


def test_a_number_that_is_an_input_has_any_value():
    n = 1234567
    graph = graph_of([], n, numbers=frozenset({id(n)}))
    assert graph.checks == [("small_int", 0)]
    assert guard_of(graph).check((5,))


def test_a_gradient_is_read_again_of_its_tensor():
    x, gradient = torch.ones(2), torch.zeros(2)
    graph = graph_of([], x, gradients=((x, gradient),))
    assert names(graph) == ["tensor", "gradient", "tensor"]
    assert graph.relative[id(gradient)].expr == "_d0(_a0)"
    assert labels(graph)[-1] == ".grad"


def test_a_gradient_that_is_looked_at_first_is_reached_through_its_tensor():
    x, gradient = torch.ones(2), torch.zeros(2)
    read = ("attr_c", gradient, "x", 1)
    graph = graph_of([read], x, gradients=((x, gradient),))
    assert names(graph) == ["tensor", "gradient", "tensor", "attr", "leaf"]


# ------------------------------------------------------------- anchored roots


def test_an_attribute_of_the_callable_is_guarded_at_the_object():
    obj, held = Plain(), [1]
    obj.x = held
    d = vars(obj)
    log = [("link_dict", obj, None, d), ("dict_key", d, "x", held)]
    graph = graph_of(log, f=obj)
    assert graph.checks == []
    assert graph.records["inst_dicts"] == [(obj, d)]
    assert list(graph.groups["dicts"].values()) == [(d, [("x", held, "is")])]
    assert graph.anchored[id(held)] is held
    assert not graph.relative
    guard = guard_of(graph)
    assert guard.check(())
    obj.x = [1]
    assert not guard.check(())


def test_an_anchored_object_among_the_arguments_is_relative():
    obj = Plain()
    graph = graph_of([("link_dict", obj, None, vars(obj))], obj, f=types.MethodType(len, obj))
    assert id(obj) in graph.anchored
    assert names(graph) == ["type", "inst_dict"]


def test_what_the_run_writes_over_is_guarded_by_what_it_is_like():
    d, state = {}, torch.ones(2)
    read = ("dict_key", d, "h", state)
    graph = graph_of([read], overwritten=frozenset({(id(d), "h")}))
    assert graph.checks[0] == ("dict_get", 0, ("a", d), "h")
    assert names(graph) == ["dict_get", "tensor"]
    assert graph.relative[id(state)].expr == "dict.__getitem__(_d0, 'h')"
    assert graph.constants == {"_d0": d}
    kept = graph_of([read])
    assert kept.checks == []
    assert list(kept.groups["dicts"].values()) == [(d, [("h", state, "is")])]


def test_a_list_that_the_run_fills_is_guarded_by_what_its_elements_are_like():
    items = [torch.ones(2), 1]
    graph = graph_of([("snap", items, None, tuple(items))], rearranged=frozenset({id(items)}))
    assert graph.checks[:3] == [
        ("len", ("a", items), 2),
        ("item", 0, ("a", items), 0),
        ("item", 1, ("a", items), 1),
    ]
    assert names(graph)[3:] == ["tensor", "leaf"]
    assert graph.relative[id(items[0])].expr == "list.__getitem__(_d0, 0)"
    kept = graph_of([("snap", items, None, tuple(items))])
    assert kept.records["lists"] == [(items, tuple(items))]


def test_places_of_numbers_that_are_inputs_are_left_out():
    items = [1, 2]
    numbered = frozenset({(id(items), -1)})
    graph = graph_of([("snap", items, None, (1, 2))], numbered=numbered)
    assert names(graph) == ["len", "item", "item", "leaf"]
    assert graph.checks[-1] == ("leaf", 0, 1)


def test_classes_are_guarded_by_what_was_looked_up():
    class Base:
        pass

    class Derived(Base):
        pass

    graph = graph_of(
        [
            ("type_attr", Derived, "x", ABSENT),
            ("protocols", Derived, None, (("__len__", ABSENT), ("__call__", ABSENT))),
            ("super", Derived, (Derived, "m"), ABSENT),
            ("type_itself", Base, "y", None),
        ]
    )
    found = [("x", ABSENT), ("__len__", ABSENT), ("__call__", ABSENT)]
    assert list(graph.groups["types"].values()) == [(Derived, found)]
    assert graph.records["supers"] == [(Derived, Derived, "m", ABSENT)]
    assert graph.records["redo"][0][1:] == ((Base, "y"), True, "leaf")
    assert labels(graph)[1:] == [".x", "special methods", "super().m", "y"]


def test_a_function_keeps_what_it_has_for_good():
    def f(a, b=()):
        return a

    state = (f.__code__, f.__defaults__, f.__kwdefaults__)
    graph = graph_of([("func", f, None, state)])
    assert graph.records["funcs"] == [(f, *state)]
    assert id(f.__globals__) in graph.anchored


def test_an_anchored_tuple_anchors_its_items_without_a_check():
    inner = []
    held = (1, inner)
    graph = graph_of([("identity", held, None, None)])
    assert graph.anchored[id(inner)] is inner
    assert graph.checks == []
    items = [edge for edge, checks in graph.edges if type(edge) is edges.Item and not checks]
    assert [(edge.key, edge.value) for edge in items] == [(1, inner)]


def test_what_a_weak_reference_refers_to_stays():
    class Answers(World):
        def referent(self, ref):
            return [9] if ref is reference else None

    obj = Plain()
    reference = weakref.ref(obj)
    graph = graph_of([("identity", reference, None, None)], world=Answers())
    assert [9] in graph.anchored.values()
    assert id(obj) not in graph.anchored


def test_a_replaced_dict_is_refused():
    class Other(World):
        def instance_dict(self, obj):
            return {}

    obj = Plain()
    with pytest.raises(Refusal, match="the __dict__ of a Plain is replaced"):
        graph_of([("link_dict", obj, None, vars(obj))], f=obj, world=Other())


def test_events_of_writes_are_no_reads():
    obj, cls, d = Plain(), type("C", (), {}), {"a": 1}
    graph = graph_of(
        [
            ("write_attr", obj, "x", ABSENT),
            ("write_type", cls, "x", ABSENT),
            ("dict_del", d, "a", 1),
            ("object", obj, None, None),
        ]
    )
    assert labels(graph) == ["callable"]
    assert not graph.checks
    assert not graph.records


# ------------------------------------------------------------- the whole capture


def capture_of(log, *args, record=None, buffers=()):
    return Capture(
        f=None,
        args=args,
        kwargs={},
        log=log,
        record=record or Record(),
        metas={},
        state=None,
        result=None,
        effects=[],
        redo=[],
        opaque=[],
        arrays=[],
        buffers=list(buffers),
        memos=[],
        start_modes=None,
        events=len(log),
    )


def test_a_changed_tensor_shares_memory_with_those_that_the_world_says():
    class Shared(World):
        def overlaps(self, tensors, count):
            assert count == 1
            return [(0, 1, 2)]

    x, y = torch.ones(2), torch.zeros(2)
    record = Record(inputs={0: x, 1: y}, mutated=frozenset({0}))
    analysis = analyze(capture_of([], x, y, record=record), Shared())
    assert analysis.graph.checks[-1] == ("overlap", (0, 1), ((0, 1, 2),), 1)
    assert analysis.sharing == [(x, y)]


def test_relative_objects_stay_apart_from_each_other_and_from_anchored_ones():
    x, y, held = [1], [2], [3]
    d = {"k": held}
    analysis = analyze(capture_of([("dict_key", d, "k", held)], x, y))
    assert analysis.graph.checks[-1] == ("distinct", (0, 1), (held,))
    assert analysis.guard().check((x, y))
    assert not analysis.guard().check((x, x))


# ------------------------------------------------------------- pictures


def test_a_picture_shows_what_the_guard_checks():
    obj, held = Plain(), [1]
    obj.x, obj.n = held, 3
    d = vars(obj)
    log = [
        ("link_dict", obj, None, d),
        ("dict_key", d, "x", held),
        ("dict_key", d, "n", 3),
        ("dict_key", d, "no", ABSENT),
    ]
    shown = draw.picture(graph_of(log, obj))
    found = [(a, b, e["label"], e["checks"]) for a, b, e in shown.edges(data=True)]
    assert found == [
        ("call", id(obj), "arg 0", ["type"]),
        (id(obj), id(held), "x", ["dict_get", "type"]),
    ]
    assert shown.nodes[id(obj)]["label"] == "Plain"
    assert shown.nodes[id(obj)]["reads"] == [
        "the key 'n' of a dict is 3",
        "the key 'no' of a dict is absent",
    ]


def test_a_picture_tells_an_absent_value():
    obj = Slotted()
    shown = draw.picture(graph_of([("attr_c", obj, "x", ABSENT)], obj))
    assert shown.nodes[id(obj)]["reads"] == ["the attribute 'x' of an object is absent"]


def test_a_picture_keeps_no_object_alive():
    obj = Plain()
    shown = draw.picture(graph_of([("link_dict", obj, None, vars(obj))], obj))
    died = weakref.ref(obj)
    del obj
    gc.collect()
    assert died() is None
    assert shown.number_of_nodes() == 2


def test_a_drawing_says_what_is_checked(tmp_path):
    obj = Slotted()
    obj.x = []
    path = tmp_path / "graph.dot"
    draw.draw(draw.picture(graph_of([("attr_c", obj, "x", obj.x)], obj)), path)
    text = path.read_text()
    assert 'label=".x", tooltip="the attribute \'x\' of an object: attr, type"' in text


def test_a_dict_whose_length_was_asked_has_the_same_keys_and_other_values():
    anchored, argument = {"a": 1, "b": 2}, {"k": 1}
    graph = graph_of(
        [("keys", anchored, None, ("a", "b")), ("keys", argument, None, ("k",))], argument
    )
    guard = guard_of(graph)
    anchored["a"] = 3
    assert guard.check(({"k": 2},), {})
    assert not guard.check(({"l": 2},), {})
    anchored["c"] = 3
    assert not guard.check(({"k": 2},), {})
