"""Checkpoints, and hooks of saved tensors that the caller has set.

A checkpointed block is compiled, whether the checkpoint is in the compiled callable or around it,
and computed again as it was computed first.
"""

import functools
import gc
import weakref

import pytest
import torch
from torch import nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
    set_checkpoint_early_stop,
)

import magpy
from benchmarks.measure import peak_memory

both_kinds = pytest.mark.parametrize("reentrant", [False, True], ids=["", "reentrant"])
backends = pytest.mark.parametrize("backend", ["eager", "aot_eager"])


@pytest.fixture(autouse=True)
def regions(monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", True)


def layers(n=3):
    return nn.Sequential(
        *[nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.3), nn.GELU()) for _ in range(n)]
    )


class Model(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.layers, self.options, self.calls = layers(), options, 0


class OfModules(Model):
    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, **self.options)
        return x


class OfMethods(Model):
    def part(self, x, times):
        return self.layers[1](self.layers[0](x)) * times

    def forward(self, x):
        return self.layers[2](checkpoint(self.part, x, 2, **self.options))


class OfPartials(Model):
    def forward(self, x):
        mask = torch.rand(3, 4)
        for layer in self.layers:
            x = checkpoint(
                functools.partial(lambda f, m, h: f(h) * m, layer, mask), x, **self.options
            )
        return x


class OfClosures(Model):
    def forward(self, x):
        mask = torch.rand(3, 4)
        for layer in self.layers:

            def part(h, layer=layer):
                return layer(h) * mask

            x = checkpoint(part, x, **self.options)
        return x


class OfClosuresThatShareACell(Model):
    """The recomputation finds the last layer in it."""

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(lambda h: layer(h), x, **self.options)  # noqa: B023, PLW0108
        return x


class Nested(Model):
    def part(self, x):
        x = checkpoint(self.layers[1], self.layers[0](x), **self.options)
        return self.layers[2](x)

    def forward(self, x):
        return checkpoint(self.part, x, **self.options)


class Sequential(Model):
    def forward(self, x):
        return checkpoint_sequential(self.layers, 2, x, **self.options)


class WithoutRandomState(Model):
    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, preserve_rng_state=False, **self.options)
        return x


class Counts(Model):
    """Calls are counted ahead of the operations, and after them."""

    def part(self, x):
        self.calls += 1
        x = self.layers[0](x)
        self.calls += 100
        return x

    def forward(self, x):
        return self.layers[2](self.layers[1](checkpoint(self.part, x, **self.options)))


class Statistics(Model):
    def __init__(self, **options):
        super().__init__(**options)
        self.norm = nn.BatchNorm1d(4)
        self.part = nn.Sequential(self.layers[0], self.norm, self.layers[1])

    def forward(self, x):
        return self.layers[2](checkpoint(self.part, x, **self.options))


class Selective(Model):
    def forward(self, x):
        contexts = functools.partial(create_selective_checkpoint_contexts, _keeps_products)
        for layer in self.layers:
            x = checkpoint(layer, x, context_fn=contexts, **self.options)
        return x


def _keeps_products(ctx, op, *args, **kwargs):
    keep = op is torch.ops.aten.addmm.default
    return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE


def trained(cls, options, backend, calls=5):
    """What each of some training steps gives, with and without magpy, and the compiled model."""
    found = []
    for compiled in (False, True):
        torch.manual_seed(0)
        model = cls(**options)
        f = magpy.compile(model, backend=backend) if compiled else model
        steps = []
        for i in range(calls):
            torch.manual_seed(i)
            x = torch.randn(3, 4, requires_grad=True)
            y = f(x)
            y.sum().backward()
            state = [x.grad, *(p.grad for p in model.parameters()), *model.buffers()]
            steps.append([model.calls, torch.rand(1), y.detach(), *state])
            model.zero_grad()
        found.append(steps)
    return *found, f


def assert_equal(found, expected):
    for step, wanted in zip(found, expected, strict=True):
        for a, b in zip(step, wanted, strict=True):
            assert a.equal(b) if isinstance(a, torch.Tensor) else a == b


EVERYWHERE = [OfModules, OfMethods, OfPartials, OfClosures, Sequential]
IN_PART = [Nested, WithoutRandomState, Counts, Statistics]


@backends
@both_kinds
@pytest.mark.parametrize("cls", EVERYWHERE)
def test_blocks_are_compiled(cls, reentrant, backend):
    expected, found, f = trained(cls, {"use_reentrant": reentrant}, backend)
    assert_equal(found, expected)
    stats = magpy.stats(f)
    # The call of a checkpoint is one that Python does; aot_eager tells it from what graphs do.
    assert stats.share >= (0.75 if backend == "aot_eager" else 1)
    assert stats.hits >= 2


@backends
@both_kinds
@pytest.mark.parametrize("cls", IN_PART)
def test_steps_are_those_of_eager(cls, reentrant, backend):
    expected, found, f = trained(cls, {"use_reentrant": reentrant}, backend)
    assert_equal(found, expected)
    assert magpy.stats(f).captures > 0


@both_kinds
def test_blocks_of_gpt2_are_in_graphs_with_the_memory_of_eager(reentrant):
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"n_layer": 3, "n_embd": 64, "n_head": 2, "vocab_size": 200, "n_positions": 64}
    ids, losses, peaks = torch.randint(200, (4, 64)), [], []
    for system in ("as it is", "eager", "magpy"):
        torch.manual_seed(0)
        tokens = {"bos_token_id": None, "eos_token_id": None, "use_cache": False}
        model = GPT2LMHeadModel(GPT2Config(**sizes, **tokens)).train()
        if system != "as it is":
            model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step(ids, model=model, optimizer=optimizer):
            optimizer.zero_grad()
            loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
            optimizer.step()
            return loss.detach()

        call = magpy.compile(step, backend="eager") if system == "magpy" else step
        losses.append([call(ids).item() for _ in range(6)])
        peaks.append(peak_memory(functools.partial(call, ids)))
    assert losses[1] == losses[2]
    assert peaks[1] < 0.8 * peaks[0] and peaks[2] <= 1.1 * peaks[1]
    stats = magpy.stats(call)
    assert stats.share > 0.95 and stats.hits > 3


@both_kinds
def test_a_closure_whose_cell_is_assigned_again_is_computed_with_that(reentrant):
    options = {"use_reentrant": reentrant}
    expected, found, f = trained(OfClosuresThatShareACell, options, "eager")
    assert_equal(found, expected)
    assert magpy.stats(f).captures > 0


def test_a_traceback_through_a_block_that_is_made_in_each_call_names_the_program_alone():
    raises = False

    def fails(k):
        if raises:
            raise ValueError(k)
        return k

    @magpy.compile(backend="eager")
    def f(x, k):
        return checkpoint(lambda t: t * magpy.disable(fails)(k), x, use_reentrant=False)

    x = torch.ones(2, requires_grad=True)
    for _ in range(4):
        f(x, 2.0)
    assert magpy.stats(f).captures
    raises = True
    with pytest.raises(ValueError) as raised:
        f(x, 2.0)
    names = [e.name for e in raised.traceback if str(e.path) == __file__]
    assert names[1:] == ["f", "<lambda>", "fails"]


@backends
def test_a_selective_checkpoint_is_eagers(backend):
    expected, found, f = trained(Selective, {"use_reentrant": False}, backend)
    assert_equal(found, expected)
    assert "selective" in str(magpy.stats(f).reasons)


@backends
@both_kinds
def test_a_compiled_block_is_checkpointed(reentrant, backend):
    def outcome(compiled):
        torch.manual_seed(0)
        blocks = layers()
        called = [magpy.compile(b, backend=backend) if compiled else b for b in blocks]
        steps = []
        for i in range(5):
            torch.manual_seed(i)
            x = torch.randn(3, 4, requires_grad=True)
            y = x
            for b in called:
                y = checkpoint(b, y, use_reentrant=reentrant)
            y.sum().backward()
            steps.append([x.grad, y.detach(), *(p.grad.clone() for p in blocks.parameters())])
        return steps, called

    found, called = outcome(compiled=True)
    assert_equal(found, outcome(compiled=False)[0])
    stats = magpy.stats(called[0])
    assert (stats.captures, stats.hits) == ((2, 8) if reentrant else (1, 8))


@backends
@pytest.mark.parametrize("early", [True, False])
def test_a_call_is_computed_again_as_it_was_first(backend, early):
    """Although there is an entry by then, of which a compiler saves other tensors."""
    model = layers(1)

    def block(x):
        return model(x).softmax(-1)

    def outcome(f):
        torch.manual_seed(0)
        model.zero_grad()
        inputs = [torch.randn(3, 4, requires_grad=True) for _ in range(4)]
        with set_checkpoint_early_stop(early):
            results = [checkpoint(f, x, use_reentrant=False) for x in inputs]
        for y in results:
            y.sum().backward(retain_graph=True)
        for y in reversed(results):
            y.sum().backward()
        return [[x.grad for x in inputs]]

    f = magpy.compile(block, backend=backend)
    for _ in range(2):
        assert_equal(outcome(f), outcome(block))
    assert magpy.stats(f).captures == 1
    # The first forward pass and its two recomputations are eager.
    assert magpy.stats(f).hits == 2 * 4 * 3 - 3


def test_sizes_that_differ_are_captured_in_the_forward_pass_alone():
    def block(x):
        return x.tanh().softmax(-1)

    f = magpy.compile(block, backend="aot_eager")
    for n in (3, 3, 4, 3, 5, 6):
        x = torch.randn(n, 4, requires_grad=True)
        other = x.detach().clone().requires_grad_()
        checkpoint(f, x, use_reentrant=False).sum().backward()
        checkpoint(block, other, use_reentrant=False).sum().backward()
        assert x.grad.equal(other.grad)
    assert magpy.stats(f).captures == 2


def test_what_was_saved_for_a_checkpoint_is_let_go():
    block = magpy.compile(lambda t: t.tanh().exp(), backend="eager")
    died = []
    for _ in range(3):
        x = torch.ones(2, requires_grad=True)
        y = checkpoint(block, x, use_reentrant=False)
        weakref.finalize(x, died.append, 1)
        y.sum().backward()
        del x, y
        gc.collect()
    assert len(died) == 3


# ------------------------------------------------------------- hooks that the caller has set


def _plain(x, w):
    h = (x @ w).tanh()
    return h * h, h.exp()


def _leaves_results(x, w):
    h = (x @ w).exp()
    h.sin()
    return h.tanh() * h.tanh()


def _in_place(x, w):
    h = x @ w
    g = h.sigmoid()
    h.mul_(2)
    return g * h.exp(), nn.functional.dropout(g)


def _of_data(x, w):
    h = (x @ w).exp()
    return h * 2 if h.sum() > 0 else h.relu()


def _views(x, w):
    return x.view(-1)[:2].sum() * w.t()[0].sum()


PROGRAMS = [_plain, _leaves_results, _in_place, _of_data, _views]


def heard_of(f, hooks, calls=4):
    heard, results = [], []
    w = torch.linspace(0, 1, 12).reshape(4, 3).requires_grad_()
    for i in range(calls):
        torch.manual_seed(i)
        x = torch.rand(2, 4)
        with hooks(heard):
            y = f(x, w)
        torch.autograd.backward([t.sum() for t in (y if isinstance(y, tuple) else (y,))])
        results.append([t.detach() for t in (y if isinstance(y, tuple) else (y,))])
    return heard, [[w.grad, *(t for r in results for t in r)]]


def _notes(heard):
    def pack(t):
        heard.append(("pack", tuple(t.shape), t.sum().item()))
        return t

    def unpack(t):
        heard.append(("unpack", tuple(t.shape)))
        return t

    return saved_tensors_hooks(pack, unpack)


@pytest.mark.parametrize("program", PROGRAMS)
def test_hooks_hear_what_they_hear_in_eager(program):
    f = magpy.compile(program, backend="eager")
    heard, found = heard_of(f, _notes)
    wanted, expected = heard_of(program, _notes)
    assert heard == wanted
    assert_equal(found, expected)
    assert magpy.stats(f).hits >= 2


@backends
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize(
    "hooks",
    [lambda heard: save_on_cpu(), lambda heard: saved_tensors_hooks(torch.clone, torch.clone)],
    ids=["save_on_cpu", "copies"],
)
def test_what_is_saved_goes_through_hooks(program, hooks, backend):
    f = magpy.compile(program, backend=backend)
    assert_equal(heard_of(f, hooks)[1], heard_of(program, hooks)[1])
    assert magpy.stats(f).hits >= (0 if program is _of_data else 3)


def test_hooks_may_be_others_in_each_call():
    f = magpy.compile(_plain, backend="eager")
    w = torch.ones(4, 3, requires_grad=True)
    for pack in (torch.clone, torch.neg, torch.relu):
        w.grad = None
        with saved_tensors_hooks(pack, torch.abs):
            y = f(torch.ones(2, 4), w)[1]
        y.sum().backward()
        found, w.grad = w.grad, None
        with saved_tensors_hooks(pack, torch.abs):
            y = _plain(torch.ones(2, 4), w)[1]
        y.sum().backward()
        assert found.equal(w.grad)
    assert magpy.stats(f).hits == 2


def test_a_hook_that_raises_ends_the_call():
    seen = []

    def pack(t):
        seen.append(1)
        if len(seen) % 3 == 0:
            raise ValueError("no room")
        return t

    def outcome(f):
        seen.clear()
        out = []
        for _ in range(6):
            w = torch.ones(4, 3, requires_grad=True)
            try:
                with saved_tensors_hooks(pack, lambda t: t):
                    out.append(f(torch.ones(2, 4), w)[0].tolist())
            except ValueError as e:
                out.append(str(e))
        return out, len(seen)

    f = magpy.compile(_plain, backend="eager")
    assert outcome(f) == outcome(_plain)
    f(torch.ones(2, 4), torch.ones(4, 3, requires_grad=True))


def test_a_hook_that_raises_in_an_entry_ends_the_call():
    f = magpy.compile(_plain, backend="eager")
    w = torch.ones(4, 3, requires_grad=True)
    for _ in range(3):
        with saved_tensors_hooks(torch.clone, torch.clone):
            f(torch.ones(2, 4), w)
    assert magpy.stats(f).hits == 2
    with pytest.raises(RuntimeError, match="square"), saved_tensors_hooks(torch.inverse, abs):
        f(torch.ones(2, 4), w)
    with saved_tensors_hooks(torch.clone, torch.clone):
        f(torch.ones(2, 4), w)
    assert magpy.stats(f).hits >= 3


def test_what_hooks_change_the_call_reads_anew():
    heard = []

    def program(x):
        y = x.exp().sin()
        return y * len(heard)

    def outcome(f):
        heard.clear()
        out = []
        for _ in range(5):
            x = torch.ones(2, requires_grad=True)
            with saved_tensors_hooks(lambda t: heard.append(1) or t, lambda t: t):
                out.append(f(x).tolist())
        return out

    assert outcome(magpy.compile(program, backend="eager")) == outcome(program)


def test_hooks_look_at_what_the_call_changes():
    class Box:
        n = 0

    def program(x):
        h = x.exp()
        Box.n += 1
        return h.sin()

    def outcome(f):
        heard, Box.n = [], 0
        for _ in range(5):
            x = torch.ones(2, requires_grad=True)
            with saved_tensors_hooks(lambda t: heard.append(Box.n) or t, lambda t: t):
                f(x)
        return heard

    f = magpy.compile(program, backend="eager")
    assert outcome(f) == outcome(program)


def test_hooks_within_the_call_hear_of_what_runs_in_graphs():
    def program(x, w):
        kept = []
        with saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
            h = (x @ w).tanh().exp()
        return (h.sin() * h).sum(), kept

    f = magpy.compile(program, backend="eager")
    for _ in range(5):
        w, v = (torch.ones(4, 3, requires_grad=True) for _ in range(2))
        (y, kept), (z, wanted) = f(torch.ones(2, 4), w), program(torch.ones(2, 4), v)
        y.backward()
        z.backward()
        assert (kept, y, w.grad.tolist()) == (wanted, z, v.grad.tolist())
    assert magpy.stats(f).regions >= 1
