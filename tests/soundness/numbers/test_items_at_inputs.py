"""What a list or dict has at a number or text that is an input: `caches[self.layer_index]`.

Which object it is differs from call to call; one entry serves all layers that are alike.
"""

import copy
import types

import pytest
import torch

import magpy


class Cache:
    """What one layer keeps."""

    def __init__(self, i):
        self.k = torch.full((4,), float(i))
        self.seen = 0
        self.name = f"layer {i}"


class Slots:
    __slots__ = ("i",)

    def __init__(self, i):
        self.i = i


def caches():
    return [Cache(i) for i in range(6)]


def used(cache, x):
    cache.seen += 1
    cache.k = cache.k * 0.5 + x
    return cache.k + 1


def by_argument(x, held, i):
    return used(held[i], x)


def by_keyword(x, held, *, i):
    return used(held[i], x)


def by_attribute(x, held, layer):
    return used(held[layer.i], x)


def by_slot(x, held, slots):
    return used(held[slots.i], x)


def by_key(x, held, settings):
    return used(held[settings["i"]], x)


def by_element(x, held, places):
    return used(held[places[0]], x)


def from_the_end(x, held, i):
    return used(held[i], x)


def twice(x, held, layer):
    return used(held[layer.i], x) + used(held[layer.i], x)


def and_by_itself(x, held, layer):
    return used(held[layer.i], x) + used(held[0], x)


def and_the_length(x, held, layer):
    return used(held[layer.i], x) * len(held)


def two_numbers(x, held, i, j):
    return used(held[i], x) + used(held[j], x)


def appended_after(x, held, layer):
    y = used(held[layer.i], x)
    held.append(Cache(9))
    return y


def swapped_after(x, held, layer):
    y, other = used(held[layer.i], x), held
    other[0], other[1] = other[1], other[0]
    return y


def counted_after(x, held, layer):
    y = used(held[layer.i], x)
    layer.i += 1
    return y


def counted_before(x, held, layer):
    layer.i += 1
    return used(held[layer.i], x)


def stored_before(x, held, layer):
    held[0] = Cache(9)
    return used(held[layer.i], x)


def looked_through(x, held, layer):
    y = used(held[layer.i], x)
    return y + sum(c.seen for c in held)


def compared(x, held, layer):
    if held[layer.i] is held[2]:
        return x * 2
    return used(held[layer.i], x)


def replaced(x, held, layer):
    y = used(held[layer.i], x)
    held[layer.i] = Cache(layer.i)
    return y


def layer(i):
    return types.SimpleNamespace(i=i)


PROGRAMS = {
    by_argument: lambda i: ((i,), {}),
    by_keyword: lambda i: ((), {"i": i}),
    by_attribute: lambda i: ((layer(i),), {}),
    by_slot: lambda i: ((Slots(i),), {}),
    by_key: lambda i: (({"i": i},), {}),
    by_element: lambda i: (([i, 7],), {}),
    from_the_end: lambda i: ((-1 - i,), {}),
    twice: lambda i: ((layer(i),), {}),
    and_by_itself: lambda i: ((layer(i),), {}),
    and_the_length: lambda i: ((layer(i),), {}),
    two_numbers: lambda i: ((i, (i + 1) % 5), {}),
    appended_after: lambda i: ((layer(i),), {}),
    swapped_after: lambda i: ((layer(i),), {}),
    counted_after: lambda i: ((layer(i),), {}),
    counted_before: lambda i: ((layer(i),), {}),
    stored_before: lambda i: ((layer(i),), {}),
    looked_through: lambda i: ((layer(i),), {}),
    compared: lambda i: ((layer(i),), {}),
    replaced: lambda i: ((layer(i),), {}),
}
#: Those in which one entry cannot serve every element: what else is read tells them apart.
FIXED = {stored_before, counted_before, compared, replaced, looked_through}


def state(held):
    return [(c.k.tolist(), c.seen, c.name) for c in held]


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_it_is_the_element_that_eager_reads(f):
    held = caches()
    expected = copy.deepcopy(held)
    compiled = magpy.compile(f, backend="eager")
    for call in range(15):
        x = torch.randn(4)
        (args, kwargs), (args_, kwargs_) = PROGRAMS[f](call % 5), PROGRAMS[f](call % 5)
        if call == 11:
            held[1], held[3] = held[3], held[1]
            expected[1], expected[3] = expected[3], expected[1]
        result, wanted = compiled(x, held, *args, **kwargs), f(x, expected, *args_, **kwargs_)
        assert torch.equal(result, wanted)
        assert state(held) == state(expected)
        shown = [getattr(a, "i", None) for a in args]
        assert shown == [getattr(a, "i", None) for a in args_]
    if f not in FIXED:
        stats = magpy.stats(compiled)
        assert stats.captures <= 4 and not stats.eager_calls, stats.reasons


def test_a_number_that_no_element_has_raises_as_in_eager():
    held = caches()
    compiled = magpy.compile(by_argument, backend="eager")
    x = torch.ones(4)
    for i in (0, 1, 2, 3):
        compiled(x, held, i)
    for i in (6, -7, 1 << 70):
        with pytest.raises(IndexError):
            compiled(x, held, i)
    assert [c.seen for c in held] == [1, 1, 1, 1, 0, 0]
    compiled(x, held, True)
    assert held[1].seen == 2


def test_an_element_of_another_kind_is_captured_anew():
    held = caches()
    expected = copy.deepcopy(held)
    compiled = magpy.compile(by_argument, backend="eager")
    x = torch.ones(4)
    for i in (0, 1, 2, 3):
        assert torch.equal(compiled(x, held, i), by_argument(x, expected, i))
    for h in (held, expected):
        h[4] = types.SimpleNamespace(k=torch.zeros(4, dtype=torch.float64), seen=1)
        h[5] = h[0]
    for i in (4, 5, 0, 4):
        assert torch.equal(compiled(x, held, i), by_argument(x, expected, i))
    assert [c.seen for c in held] == [c.seen for c in expected]


def test_one_object_at_two_numbers_is_told_from_two():
    held = caches()
    compiled = magpy.compile(two_numbers, backend="eager")
    expected = copy.deepcopy(held)
    x = torch.ones(4)
    for i, j in ((0, 1), (1, 2), (2, 3), (3, 3), (1, 1), (4, 2)):
        assert torch.equal(compiled(x, held, i, j), two_numbers(x, expected, i, j))
        assert state(held) == state(expected)


def named(x, held, name):
    return used(held[name], x)


def named_by_layer(x, held, layer):
    return used(held[layer.name], x)


def named_and_put_there(x, held, layer):
    y = used(held[layer.name], x)
    held["last"] = layer.name
    return y


def asked_for(x, held, name):
    return used(held[name], x) if name in held else x


@pytest.mark.parametrize("f", [named, named_by_layer, named_and_put_there, asked_for])
def test_objects_in_a_dict(f):
    def made():
        return {f"layer {i}": Cache(i) for i in range(6)}

    held, expected = made(), made()
    compiled = magpy.compile(f, backend="eager")
    for call in range(15):
        x, name = torch.randn(4), f"layer {call % 6}"
        given = name if f in (named, asked_for) else types.SimpleNamespace(name=name)
        if call == 12:
            for d in (held, expected):
                d["layer 0"], d["layer 1"] = d["layer 1"], d["layer 0"]
        assert torch.equal(compiled(x, held, given), f(x, expected, given))
        last = held.pop("last", None), expected.pop("last", None)
        assert last[0] == last[1] and list(held) == list(expected)
        assert state(held.values()) == state(expected.values())
    if f is not asked_for:
        assert magpy.stats(compiled).captures <= 4
    del held["layer 3"]
    if f is asked_for:
        assert torch.equal(compiled(x, held, "layer 3"), x)
    else:
        with pytest.raises(KeyError, match="layer 3"):
            gone = "layer 3" if f is named else types.SimpleNamespace(name="layer 3")
            compiled(x, held, gone)


def test_keys_that_are_equal_and_others_are_looked_up_as_python_does():
    held = {i: Cache(i) for i in range(6)}
    expected = copy.deepcopy(held)
    compiled = magpy.compile(by_argument, backend="eager")
    x = torch.ones(4)
    for i in (0, 1, 2, 3, True, 2.0, 4, 5, False):
        assert torch.equal(compiled(x, held, i), by_argument(x, expected, i))
        assert state(held.values()) == state(expected.values())
    assert magpy.stats(compiled).captures <= 5


def test_tensors_in_a_list():
    def f(x, keys, i):
        keys[i].add_(x)
        return keys[i] * 2

    keys = [torch.full((4,), float(i)) for i in range(6)]
    expected = copy.deepcopy(keys)
    compiled = magpy.compile(f, backend="eager")
    for i in (0, 1, 2, 3, 4, 5, 2, 0):
        x = torch.randn(4)
        assert torch.equal(compiled(x, keys, i), f(x, expected, i))
        assert all(map(torch.equal, keys, expected))
    stats = magpy.stats(compiled)
    assert stats.captures <= 3 and not stats.eager_calls, stats.reasons


def test_a_list_that_is_a_global_or_a_modules():
    class Blocks(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.tables = [torch.full((3,), float(i)) for i in range(6)]

        def forward(self, x, i):
            return x * self.tables[i]

    m = Blocks()
    compiled = magpy.compile(m, backend="eager")
    for i in (0, 1, 2, 3, 4, 5):
        x = torch.randn(3)
        assert torch.equal(compiled(x, i), m(x, i))
    m.tables[2] = torch.zeros(3)
    assert torch.equal(compiled(torch.ones(3), 2), torch.zeros(3))
    stats = magpy.stats(compiled)
    assert stats.captures <= 3 and not stats.eager_calls, stats.reasons


def test_layers_under_a_driver_share_what_their_regions_captured(monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", True)
    import threading

    local = threading.local()

    class Layer(torch.nn.Module):
        def __init__(self, i):
            super().__init__()
            self.i = i
            self.linear = torch.nn.Linear(4, 4)

        def forward(self, x, held):
            cache = held[self.i]
            h = torch.relu(self.linear(x)) + cache.k
            cache.k = h.detach()
            local.calls = getattr(local, "calls", 0) + 1
            return torch.tanh(h) * 2 - x

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(map(Layer, range(20)))

        def forward(self, x, held):
            for one in self.layers:
                x = one(x, held)
            return x

    m = Model()
    held = [Cache(0) for _ in range(20)]
    expected = copy.deepcopy(held)
    compiled = magpy.compile(m, backend="eager")
    for _ in range(6):
        x = torch.randn(4)
        torch.testing.assert_close(compiled(x, held), m(x, expected), rtol=0, atol=0)
    stats = magpy.stats(compiled)
    assert stats.share > 0.8 and stats.captures < 20, stats
