"""Random generators of torch's that the program makes, keeps or is given.

Owns what a call draws from a generator of its own (`torch.Generator().manual_seed(seed)`) and from
those that it is given, another one in each call, and the state in which it leaves them.  Does not
own torch's own generators (tests/soundness/tensors/test_torch_modes.py) nor Python's and NumPy's
(test_drawn_numbers.py).
"""

import functools
import types

import pytest
import torch
import torch.utils.checkpoint
from torch import nn

import magpy
from tests.backends_of_cases import SAMPLED_BACKENDS
from tests.comparison import assert_same

LAYER = nn.Linear(4, 4)
SEEDS = [0, 1, 2, 7, 7, 3, 4, 5]


def made(n, seed, given):
    g = torch.Generator().manual_seed(seed)
    h = LAYER(torch.randn(n, 4, generator=g))
    return h * torch.rand(n, 4, generator=g), torch.randperm(n, generator=g)


def made_on_a_device(n, seed, given):
    g = torch.Generator(device="cpu")
    g.manual_seed(seed)
    return torch.zeros(n, 4).normal_(generator=g) + 1


def returned(n, seed, given):
    g = torch.Generator()
    g.manual_seed(seed)
    h = torch.randn(n, 4, generator=g) * 2
    return h, g.get_state(), g


def seeded_anew_in_a_loop(n, seed, given):
    g, drawn = torch.Generator(), []
    for i in range(3):
        g.manual_seed(seed + i)
        drawn.append(torch.randint(0, 9, (n,), generator=g))
    return torch.stack(drawn), g.initial_seed() >= 0


def two_made(n, seed, given):
    first, second = (torch.Generator().manual_seed(seed + i) for i in range(2))
    a = torch.rand(n, generator=first)
    b = torch.rand(n, generator=second)
    return a * 2, b * 3, torch.rand(n, generator=first)


def as_argument(n, seed, given):
    h = LAYER(torch.randn(n, 4, generator=given.first))
    return h, torch.bernoulli(torch.full((n,), 0.5), generator=given.first)


def of_two(n, seed, given):
    a = torch.rand(n, generator=given.first)
    b = torch.rand(n, generator=given.second)
    return a * 2, b * 3, torch.rand(n, generator=given.first)


def in_a_list(n, seed, given):
    return torch.cat([torch.randn(n, generator=g) * 2 for g in [given.first, given.second]])


def initialized(n, seed, given):
    w = nn.init.trunc_normal_(torch.empty(n, 4), generator=given.first)
    return w @ LAYER.weight, torch.multinomial(torch.ones(5), 3, generator=given.second)


def by_what_is_drawn(n, seed, given):
    x = torch.randn(n, 4, generator=given.first)
    if x.sum() > 0:
        x = x * 2 + torch.rand(n, 4, generator=given.first)
    return x + torch.rand(n, 4, generator=given.first)


def by_what_is_drawn_from_its_own(n, seed, given):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 4, generator=g)
    if x.sum() > 0:
        x = x * 2 + torch.rand(n, 4, generator=g)
    return x + torch.rand(n, 4, generator=g)


def state_read(n, seed, given):
    before = given.first.get_state()
    x = torch.randn(n, generator=given.first) * 2
    return x, before, given.first.get_state()


def with_the_default_one(n, seed, given):
    a = torch.rand(n) + torch.rand(n, generator=given.first)
    return a, torch.rand(n, generator=torch.default_generator), torch.rand(n)


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, generator):
        return x * torch.rand(4, generator=generator)

    @staticmethod
    def backward(ctx, d):
        return d, None


class Holder(nn.Module):
    def forward(self, x):
        return x * torch.rand(4, generator=self.generator)


HOLDER = Holder()


def by_other_ways(n, seed, given):
    x, g = torch.ones(n, 4), given.first
    draw, state = functools.partial(torch.rand, 4, generator=g), g.get_state
    HOLDER.generator = given.second
    found = [x * draw(), state(), Scaled.apply(x, g), HOLDER(x), g.initial_seed()]
    drop = lambda t, g: t * torch.rand(4, generator=g)  # noqa: E731
    return [*found, torch.utils.checkpoint.checkpoint(drop, x, g, use_reentrant=False)]


def by_which_it_is(n, seed, given):
    scale = 1 if given.first is torch.default_generator else 2
    return (torch.ones(n) * scale * torch.rand(n, generator=given.first),)


PROGRAMS = [
    *(made, made_on_a_device, returned, seeded_anew_in_a_loop, two_made, as_argument, of_two),
    *(in_a_list, initialized, by_what_is_drawn, by_what_is_drawn_from_its_own, state_read),
    *(with_the_default_one, by_other_ways, by_which_it_is),
]
#: They are given no generator.
OF_THEIR_OWN = (made, made_on_a_device, returned, seeded_anew_in_a_loop)
KINDS = ["others", "kept", "now and then the same", "now and then torch's own"]


def given(kind, seed, i):
    """Another generator in each call, one that is kept, torch's own or one for two names."""
    first, second = (torch.Generator().manual_seed(seed + k) for k in (10, 20))
    if kind == "kept":
        first, second = KEPT
    if kind == "now and then torch's own" and i in (0, 3, 4, 6):
        first = torch.default_generator
    if kind == "now and then the same":
        second = first if i in (3, 6) else second
    return types.SimpleNamespace(first=first, second=second)


KEPT = []


def seen(f, kind, sizes):
    KEPT[:] = [torch.Generator().manual_seed(k) for k in (1, 2)]
    torch.manual_seed(0)
    results = []
    for i, (n, seed) in enumerate(zip(sizes, SEEDS, strict=True)):
        generators = given(kind, seed, i)
        with torch.no_grad():
            result = f(n, seed, generators)
        states = [generators.first.get_state(), generators.second.get_state()]
        result = [r.get_state() if isinstance(r, torch.Generator) else r for r in result]
        results.append((result, states))
    return results


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", SAMPLED_BACKENDS)
@pytest.mark.parametrize("sizes", [[2] * 8, [2, 3, 4, 5, 3, 6, 7, 8]], ids=["one size", "sizes"])
@pytest.mark.parametrize(
    ("f", "kind"),
    [(f, k) for f in PROGRAMS for k in (KINDS[:1] if f in OF_THEIR_OWN else KINDS)],
    ids=lambda v: getattr(v, "__name__", v),
)
def test_draws_and_states_are_eagers(f, kind, sizes, backend):
    compiled = magpy.compile(f, backend=backend)
    assert_same(seen(compiled, kind, sizes), seen(f, kind, sizes))
    stats = magpy.stats(compiled)
    ways = 2 if f.__name__.startswith("by_wh") or kind.startswith("now") else 1
    if f is not by_other_ways:  # how often a block is entered is counted for itself
        assert stats.captures <= 4 * ways and stats.eager_calls == 0
        assert stats.hits


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_later_capture_with_torchs_own_serves_others(backend):
    def f(x, g):
        return x + torch.rand(x.shape, generator=g)

    def world(f):
        seen = []
        for i, (n, own) in enumerate([(3, 0), (3, 0), (4, 1), (4, 0), (5, 1), (5, 0), (4, 1)]):
            torch.manual_seed(i)
            g = torch.default_generator if own else torch.Generator().manual_seed(i + 9)
            seen.append((f(torch.ones(n), g), g.get_state(), torch.get_rng_state()))
        return seen

    for dynamic in (None, False):
        compiled = magpy.compile(f, backend=backend, dynamic=dynamic)
        assert_same(world(compiled), world(f))
        assert magpy.stats(compiled).hits


def test_an_attribute_is_a_generator_by_its_own():
    class Sampler:
        def __init__(self, seed):
            self.generator = torch.Generator().manual_seed(seed)

        def sample(self, n):
            return torch.randn(n, generator=self.generator) * 2

    sample = magpy.compile(Sampler.sample, backend="eager")
    mine, theirs = ([Sampler(s) for s in (1, 2, 3)] for _ in range(2))
    for i in (0, 0, 1, 2, 1, 0):
        assert torch.equal(sample(mine[i], 3), theirs[i].sample(3))
    assert magpy.stats(sample).captures <= 2


@pytest.mark.parametrize("change", ["manual_seed", "set_state"])
def test_what_seeds_a_generator_from_outside_is_refused(change):
    def f(n, g, state):
        g.manual_seed(3) if change == "manual_seed" else g.set_state(state)
        return torch.rand(n, generator=g) * 2

    state = torch.Generator().manual_seed(5).get_state()
    c = magpy.compile(f, backend="eager")
    g, e = torch.Generator(), torch.Generator()
    for _ in range(4):
        assert torch.equal(c(3, g, state), f(3, e, state))
        assert torch.equal(g.get_state(), e.get_state())
    assert change in magpy.stats(c).reasons[0]
