"""Entries that travel: what is loaded serves the first call, or is refused with its reason."""

import contextlib
import os
import subprocess
import sys
import textwrap

import pytest
import torch

import magpy
from magpy import config
from magpy.saving import file, fingerprints
from magpy.saving.places import Mismatch, Places, Unable, find

# A program that a process saves entries of, and another one loads: `change` is what differs there.
PROGRAM = """
import sys, warnings
import torch
import magpy

SCALE = 2.0

class Block(torch.nn.Module):
    slope = 0.5
    def __init__(self, size=4):
        super().__init__()
        self.inner = torch.nn.Linear(size, size)
        self.after = torch.nn.ReLU()
    def forward(self, x, more=1.0):
        return activated(self.after(self.inner(x)), self.slope) * SCALE * more

def activated(x, slope, *, shift=0.25):
    return torch.nn.functional.leaky_relu(x, slope) - shift

torch.manual_seed(0)
model = Block().eval()
x = torch.ones(2, 4)
"""


def run(text, path, *args, env=None):
    """What a process prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", textwrap.dedent(text), str(path), *args],
        capture_output=True,
        text=True,
        check=False,
        env=env,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


SAVE = """
magpy.config.saving = True
c = magpy.compile(model, backend="{backend}")
with torch.no_grad():
    for _ in range(2):
        c(x)
found = magpy.save(c, sys.argv[1])
print(found.entries, found.graphs)
"""

LOAD = """
c = magpy.load(model, sys.argv[1])
with torch.no_grad():
    same = torch.equal(c(x), model(x))
    close = torch.allclose(c(x), model(x))
s = magpy.stats(c)
print(s.captures, s.hits, same, close)
"""


@pytest.fixture
def saving(monkeypatch):
    monkeypatch.setattr(config, "saving", True)


def test_another_process_serves_its_first_call(tmp_path):
    path = tmp_path / "entries"
    assert run(PROGRAM + SAVE.format(backend="eager"), path) == ["1", "0"]
    assert run(PROGRAM + LOAD, path) == ["0", "2", "True", "True"]


def test_sets_of_classes_travel(tmp_path):
    sets = "SEEN = {type(str(i), (), {}) for i in range(30)} | {Block}\n"
    asks = PROGRAM.replace("return activated(", "return (type(self) in SEEN) * activated(") + sets
    path = tmp_path / "entries"
    assert run(asks + SAVE.format(backend="eager"), path) == ["1", "0"]
    assert run(asks + LOAD, path) == ["0", "2", "True", "True"]


#: Without the file of entries: TorchInductor's settings that are others there.
SETTINGS = {
    "by the environment": ("", {"TORCHINDUCTOR_EMULATE_PRECISION_CASTS": "1"}),
    "by the program": (
        "import torch._inductor.config\ntorch._inductor.config.emulate_precision_casts = True\n",
        {},
    ),
}
COUNTS = """
from magpy.backends import inductor
made = []
compile_graph = inductor.compile_graph
inductor.compile_graph = lambda *args, **kw: made.append(1) or compile_graph(*args, **kw)
"""
TOLD = """
print(len(made), "torch._inductor" in sys.modules)
"""


@pytest.mark.long
def test_what_is_served_by_a_compiled_graph_needs_no_compiler(tmp_path):
    path, cache = tmp_path / "entries", tmp_path / "cache"
    assert run(PROGRAM + SAVE.format(backend="inductor"), path) == ["1", "1"]
    env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(cache)}
    found = run(PROGRAM + COUNTS + LOAD + TOLD, path, env=env)
    assert found[:2] + found[3:] == ["0", "2", "True", "0", "False"]
    for change, variables in SETTINGS.values():
        found = run(PROGRAM + COUNTS + change + LOAD + TOLD, path, env={**env, **variables})
        assert found[:2] + found[3:] == ["0", "2", "True", "1", "True"]


@pytest.mark.long
def test_settings_at_saving_need_the_same_at_loading(tmp_path):
    path = tmp_path / "entries"
    change, _ = SETTINGS["by the program"]
    assert run(PROGRAM + change + SAVE.format(backend="inductor"), path) == ["1", "1"]
    for before, made in (("", "1"), (change, "0")):
        found = run(PROGRAM + COUNTS + before + LOAD + TOLD, path)
        assert found[:2] + found[3:5] == ["0", "2", "True", made]


def test_a_kernel_that_cannot_be_loaded_is_compiled(tmp_path, monkeypatch, saving):
    compiled, path, x = magpy.compile(Scaled()), tmp_path / "entries", torch.ones(2, 4)
    with torch.no_grad():
        for _ in range(2):
            compiled(x)
    assert magpy.save(compiled, path).graphs == 1

    def put_together(alone):
        raise ImportError("a directory from which nothing is run")

    monkeypatch.setattr("magpy.runtime.saved.put_together", put_together)
    model = Scaled()
    model.load_state_dict(compiled.state_dict())
    loaded = magpy.load(model, path)
    with torch.no_grad():
        torch.testing.assert_close(loaded(x), compiled(x))
    assert magpy.stats(loaded).captures == 0


# ------------------------------------------------------------- another program, in one process


class First:
    value = 1.0


class Second:
    value = 2.0


class Third:
    value = 3.0


class Chosen:
    i = 0


KINDS, CHOSEN = [First, Second, Third], Chosen()


def chosen_kind(x):
    return x + KINDS[CHOSEN.i].value


class Scaled(torch.nn.Module):
    slope = 0.5

    def __init__(self, size=4, factor=2.0):
        super().__init__()
        self.inner = torch.nn.Linear(size, size)
        self.factor = factor

    def forward(self, x):
        return shifted(self.inner(x) * self.factor, SHIFT) * self.slope


class Noting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.seen, self.last = [0.0, 0.0, "never read"], [None, None]

    def forward(self, x):
        self.seen[0] = x.sum().item()
        self.seen[-2] = self.seen[0] + 1
        self.last[0] = y = x * self.seen[1]
        return y


SHIFT = 1.0


def shifted(x, by):
    return torch.relu(x + by)


def otherwise(x, by):
    return torch.relu(x - by)


def saved(model, path, *args, backend="eager"):
    c = magpy.compile(model, backend=backend)
    for _ in range(2):
        c(*args)
    found = magpy.save(c, path)
    magpy.reset(c)
    return found


def figures(c):
    s = magpy.stats(c)
    return s.captures, s.hits


@pytest.mark.usefixtures("saving")
class TestOneProcess:
    def test_another_object_of_the_class_is_served(self, tmp_path):
        x = torch.randn(3, 4)
        saved(Scaled(), tmp_path / "e", x)
        model = Scaled()
        c = magpy.load(model, tmp_path / "e")
        assert torch.equal(c(x), model(x))
        assert figures(c) == (0, 1)

    def test_other_arguments_are_captured(self, tmp_path):
        saved(Scaled(), tmp_path / "e", torch.randn(3, 4))
        model = Scaled()
        c = magpy.load(model, tmp_path / "e")
        x = torch.randn(5, 4)
        assert torch.equal(c(x), model(x))
        assert figures(c) == (1, 0)

    @pytest.mark.parametrize(
        "change",
        [
            lambda m: setattr(m, "factor", 3.0),
            lambda m: setattr(m, "slope", 0.25),
            lambda m: m.register_forward_hook(lambda module, args, out: out + 1),
            lambda m: setattr(m, "forward", lambda x: x),
        ],
    )
    def test_other_values_miss(self, tmp_path, change):
        x = torch.randn(3, 4)
        saved(Scaled(), tmp_path / "e", x)
        model = Scaled()
        change(model)
        with contextlib.suppress(magpy.LoadError):
            c = magpy.load(model, tmp_path / "e")
            assert torch.equal(c(x), model(x))
            assert figures(c)[1] == 0

    def test_another_global_misses(self, tmp_path, monkeypatch):
        x = torch.randn(3, 4)
        saved(Scaled(), tmp_path / "e", x)
        monkeypatch.setitem(globals(), "SHIFT", 2.0)
        model = Scaled()
        c = magpy.load(model, tmp_path / "e")
        assert torch.equal(c(x), model(x))
        assert figures(c)[1] == 0

    def test_another_class_attribute_misses(self, tmp_path, monkeypatch):
        x = torch.randn(3, 4)
        saved(Scaled(), tmp_path / "e", x)
        monkeypatch.setattr(Scaled, "slope", 2.0)
        model = Scaled()
        c = magpy.load(model, tmp_path / "e")
        assert torch.equal(c(x), model(x))
        assert figures(c)[1] == 0

    def test_a_change_after_loading_misses(self, tmp_path):
        x = torch.randn(3, 4)
        saved(Scaled(), tmp_path / "e", x)
        model = Scaled()
        c = magpy.load(model, tmp_path / "e")
        model.factor = 5.0
        assert torch.equal(c(x), model(x))
        assert figures(c)[1] == 0

    @pytest.mark.parametrize("grad", [True, False])
    def test_the_mode_is_that_of_the_capture(self, tmp_path, grad):
        x = torch.randn(3, 4)
        with torch.set_grad_enabled(grad):
            saved(Scaled(), tmp_path / "e", x)
        model = Scaled()
        with torch.set_grad_enabled(not grad):
            c = magpy.load(model, tmp_path / "e")
            assert c(x).requires_grad is not grad
            assert figures(c)[1] == 0
        with torch.set_grad_enabled(grad):
            assert c(x).requires_grad is grad
            assert figures(c)[1] == 1

    def test_gradients(self, tmp_path):
        x = torch.randn(3, 4)
        saved(Scaled(), tmp_path / "e", x)
        model, other = Scaled(), Scaled()
        other.load_state_dict(model.state_dict())
        c = magpy.load(model, tmp_path / "e")
        c(x).sum().backward()
        other(x).sum().backward()
        assert torch.equal(model.inner.weight.grad, other.inner.weight.grad)
        assert figures(c) == (0, 1)

    def test_buffers_are_changed(self, tmp_path):
        x = torch.randn(6, 4)
        saved(torch.nn.BatchNorm1d(4), tmp_path / "e", x)
        model, other = torch.nn.BatchNorm1d(4), torch.nn.BatchNorm1d(4)
        c = magpy.load(model, tmp_path / "e")
        for _ in range(3):
            assert torch.equal(c(x), other(x))
        assert torch.equal(model.running_mean, other.running_mean)
        assert int(model.num_batches_tracked) == 3
        assert figures(c) == (0, 3)

    def test_elements_of_lists_are_stored(self, tmp_path):
        x = torch.ones(3)
        saved(Noting(), tmp_path / "e", x)
        model, other = Noting(), Noting()
        c = magpy.load(model, tmp_path / "e")
        for i in range(3):
            model.seen[2] = other.seen[2] = f"other {i}"
            assert torch.equal(c(x * i), other(x * i))
            assert model.seen == other.seen
            assert torch.equal(model.last[0], other.last[0])
        assert figures(c) == (0, 3)

    def test_effects_on_objects(self, tmp_path):
        def count(x):
            seen.append(len(seen))
            return x + 1

        seen = []
        x = torch.ones(2)
        c = magpy.compile(count, backend="eager")
        c(x)
        with contextlib.suppress(magpy.SaveError):
            magpy.save(c, tmp_path / "e")
            seen.clear()
            c = magpy.load(count, tmp_path / "e")
            for _ in range(3):
                c(x)
            assert seen == [0, 1, 2]

    def test_random_numbers(self, tmp_path):
        x = torch.ones(64)
        saved(torch.nn.Dropout(), tmp_path / "e", x)
        model = torch.nn.Dropout()
        c = magpy.load(model, tmp_path / "e")
        torch.manual_seed(3)
        found = c(x)
        torch.manual_seed(3)
        assert torch.equal(found, model(x))
        assert figures(c) == (0, 1)

    # --------------------------------------------------------- refused

    def refused(self, model, path, *words):
        with pytest.raises(magpy.LoadError) as e:
            magpy.load(model, path)
        for word in words:
            assert word in str(e.value)

    def test_another_shape(self, tmp_path):
        saved(Scaled(), tmp_path / "e", torch.randn(3, 4))
        model = Scaled()
        model.inner = torch.nn.Linear(4, 5)
        self.refused(model, tmp_path / "e", "weight", "(4, 4)", "(5, 4)")

    def test_a_frozen_parameter(self, tmp_path):
        saved(Scaled(), tmp_path / "e", torch.randn(3, 4))
        self.refused(Scaled().requires_grad_(False), tmp_path / "e", "weight", "another tensor")

    def test_a_function_with_another_body(self, tmp_path, monkeypatch):
        saved(Scaled(), tmp_path / "e", torch.randn(3, 4))
        monkeypatch.setattr(shifted, "__code__", otherwise.__code__)
        self.refused(Scaled(), tmp_path / "e", "shifted", "other code")

    def test_other_defaults(self, tmp_path, monkeypatch):
        saved(Scaled(), tmp_path / "e", torch.randn(3, 4))
        monkeypatch.setattr(shifted, "__defaults__", (1.0,))
        self.refused(Scaled(), tmp_path / "e", "shifted")

    def test_another_function_at_the_name(self, tmp_path, monkeypatch):
        saved(Scaled(), tmp_path / "e", torch.randn(3, 4))
        monkeypatch.setitem(globals(), "shifted", otherwise)
        self.refused(Scaled(), tmp_path / "e", "shifted")

    def test_torchs_function_is_another(self, tmp_path, monkeypatch):
        x = torch.randn(3, 4)
        saved(Scaled(), tmp_path / "e", x)
        monkeypatch.setattr(torch, "relu", lambda x: x)
        self.refused(Scaled(), tmp_path / "e", "relu")

    def test_another_method_of_the_class(self, tmp_path, monkeypatch):
        saved(Scaled(), tmp_path / "e", torch.randn(3, 4))
        monkeypatch.setattr(Scaled, "forward", lambda self, x: x)
        self.refused(Scaled(), tmp_path / "e", "Scaled")

    def test_another_module(self, tmp_path):
        saved(Scaled(), tmp_path / "e", torch.randn(3, 4))
        model = Scaled()
        model.inner = torch.nn.Identity()
        self.refused(model, tmp_path / "e", "inner")

    def test_another_callable(self, tmp_path):
        saved(Scaled(), tmp_path / "e", torch.randn(3, 4))
        self.refused(torch.nn.ReLU(), tmp_path / "e")
        self.refused(shifted, tmp_path / "e")

    def test_parameters_that_share_memory(self, tmp_path):
        class Adds(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("a", torch.zeros(2))
                self.register_buffer("b", torch.zeros(2))

            def forward(self, x):
                self.a.add_(x)
                return self.b + x

        x = torch.ones(2)
        saved(Adds(), tmp_path / "e", x)
        model = Adds()
        model.b = model.a.view(2)
        self.refused(model, tmp_path / "e")

    # --------------------------------------------------------- what does not travel

    def not_saved(self, f, path, *args, words):
        c = magpy.compile(f, backend="eager")
        c(*args)
        with pytest.raises(magpy.SaveError, match=words):
            magpy.save(c, path)
        assert not path.exists()

    def test_without_the_setting(self, tmp_path, monkeypatch):
        monkeypatch.setattr(config, "saving", False)
        self.not_saved(Scaled(), tmp_path / "e", torch.ones(1, 4), words="saving was off")

    def test_without_a_call(self, tmp_path):
        with pytest.raises(magpy.SaveError, match="no entry"):
            magpy.save(magpy.compile(Scaled()), tmp_path / "e")

    def test_objects_among_the_arguments(self, tmp_path):
        self.not_saved(
            lambda m, x: m(x), tmp_path / "e", Scaled(), torch.ones(1, 4), words="argument"
        )

    def test_whole_functions_of_the_program(self, tmp_path):
        @magpy.allow_in_graph
        def whole(x):
            return x * 2

        self.not_saved(lambda x: whole(x), tmp_path / "e", torch.ones(2), words="whole")

    def test_passes_in_the_call(self, tmp_path):
        model = torch.nn.Linear(2, 2)

        def step(x):
            model.zero_grad()
            loss = model(x).sum()
            loss.backward()
            return loss.detach()

        self.not_saved(step, tmp_path / "e", torch.ones(2, 2), words="gradients")

    def test_backends_that_are_objects(self, tmp_path):
        c = magpy.compile(Scaled(), backend=lambda graph, inputs: graph.forward)
        c(torch.ones(1, 4))
        with pytest.raises(magpy.SaveError, match="backend"):
            magpy.save(c, tmp_path / "e")

    def test_one_entry_of_two(self, tmp_path):
        def f(x, more):
            return x + 1

        c = magpy.compile(f, backend="eager")
        c(torch.ones(2), 1)
        c(torch.ones(2), Scaled())
        with pytest.warns(magpy.MagpyWarning, match="argument"):
            found = magpy.save(c, tmp_path / "e")
        assert (found.entries, len(found.left)) == (1, 1)

    def test_what_is_read_at_a_number_that_varies(self, tmp_path):
        c = magpy.compile(chosen_kind, backend="eager")
        for i in (0, 1, 2, 0, 1):
            CHOSEN.i = i
            assert torch.equal(c(torch.zeros(2)), torch.ones(2) * KINDS[i].value)
        with pytest.warns(magpy.MagpyWarning, match="sizes or numbers vary in it"):
            assert magpy.save(c, tmp_path / "e").entries < magpy.stats(c).entries


# ------------------------------------------------------------- the file


@pytest.fixture
def written(tmp_path, saving):
    path = tmp_path / "entries"
    saved(Scaled(), path, torch.ones(1, 4))
    return path


def test_each_part_of_a_file_is_needed(written):
    data = written.read_bytes()
    for count in (0, 3, 20, 60, len(data) // 2, len(data) - 1):
        written.write_bytes(data[:count])
        with pytest.raises(magpy.LoadError):
            magpy.load(Scaled(), written)


def test_a_changed_byte(written):
    data = bytearray(written.read_bytes())
    data[-10] ^= 1
    written.write_bytes(data)
    with pytest.raises(magpy.LoadError, match="not as it was written"):
        magpy.load(Scaled(), written)


@pytest.mark.parametrize("name", file.environment())
def test_another_version(written, monkeypatch, name):
    other = {**file.environment(), name: "another"}
    monkeypatch.setattr(file, "environment", lambda: other)
    with pytest.raises(magpy.LoadError, match=f"another {name}"):
        magpy.load(Scaled(), written)


def test_a_foreign_file_is_not_unpickled(tmp_path):
    import pickle

    class Bomb:
        def __reduce__(self):
            return (pytest.fail, ("unpickled",))

    (tmp_path / "e").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(magpy.LoadError, match="no file of"):
        magpy.load(Scaled(), tmp_path / "e")


# ------------------------------------------------------------- places


def held():
    return None


class Holder:
    def __init__(self):
        self.parts = [(torch.ones(2), "a"), {"k": held}]


def test_objects_are_found_by_their_paths():
    a, b = Holder(), Holder()
    places = Places(a)
    places.reach(vars(a), "dict", 0)
    places.reach(a.parts, "key", places.ref(vars(a)), "parts")
    row = places.ref(a.parts)
    places.reach(a.parts[0], "item", row, 0)
    places.reach(a.parts[1], "item", row, 1)
    found = find(places.written, b)
    assert found[places.ref(a.parts)] is b.parts
    assert found[places.ref(a.parts[0])] is b.parts[0]
    b.parts[0] = (torch.ones(3), "a")
    with pytest.raises(Mismatch, match="another tensor"):
        find(places.written, b)
    b.parts[0] = (torch.ones(2), "b")
    with pytest.raises(Mismatch, match="other items"):
        find(places.written, b)


def test_a_path_that_leads_elsewhere_is_none():
    a, other = Holder(), [1]
    places = Places(a)
    places.reach(vars(a), "dict", 0)
    places.reach(other, "key", places.ref(vars(a)), "parts")
    with pytest.raises(Unable):
        places.ref(other)


def test_objects_of_c_are_not_found():
    places = Places(held)
    with pytest.raises(Unable):
        places.ref(open)  # noqa: SIM115 - the function has a name
        places.ref(iter([]))


def test_code_counts_and_its_place_does_not():
    spaces = [{}, {}, {}]
    exec("def f(x): return x + 1", spaces[0])
    exec("\n\ndef f(x): return x + 1", spaces[1])
    exec("def f(x): return x + 2", spaces[2])
    a, b, c = (fingerprints.code(s["f"].__code__) for s in spaces)
    assert a == b != c


def test_nothing_of_a_capture_is_forgotten():
    """Who adds something to a capture says what becomes of it in portable.py."""
    from dataclasses import fields

    from magpy.ir.capture import Capture
    from magpy.saving import portable

    written = {"f", "args", "kwargs", "record", "metas", "state", *portable._OF_CAPTURE}
    refused = {"opaque", "arrays", "array_inputs", "buffers", "memos", "instances_vary", "renewed"}
    refused.add("again")
    assert {f.name for f in fields(Capture)} == written | refused
