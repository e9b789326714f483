"""Python that looks at tensor data, and random numbers.

PYTEST_DONT_REWRITE: the programs must be what they look like.
"""

import random
import traceback

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from tests.soundness.worlds import attempt, case, check_all

CASES = []


def attempt_at(f, *args):
    """The result, or the exception's text and the lines of this file that it passed."""
    try:
        return f(*args)
    except Exception as error:
        lines = [
            (frame.name, frame.lineno)
            for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename == __file__ and frame.name != "attempt_at"
        ]
        return str(error), lines


up, down = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([-1.0, -2.0, -3.0])


@case(CASES)
def branch_with_state_on_both_sides(compile):
    seen = {"up": 0, "down": []}

    def f(t):
        if t.sum() > 0:
            seen["up"] += 1
            return t * 2
        seen["down"].append(t.min().item())
        return t - 1

    f = compile(f)
    for t in (up, up, down, up, down, down * 2, up * 0):
        yield f(t), seen


@case(CASES)
def nested_branches_make_a_tree(compile):
    def f(t):
        if t[0] > 0:
            return t * 2 if t[1] > 0 else t * 3
        return t * 5 if t[2] > 0 else t * 7

    f = compile(f)
    for signs in ((1, 1, 1), (1, -1, 1), (-1, 1, 1), (-1, 1, -1), (1, 1, 1), (-1, 1, 1)):
        t = up * torch.tensor(signs)
        yield f(t), f(t)


@case(CASES)
def loop_until_small(compile):
    def f(t):
        n = 0
        while t.norm() > 1:
            t = t / 2
            n += 1
        return t, n

    f = compile(f)
    for k in (1.0, 1.0, 2.0, 8.0, 0.01, 1.0):
        yield f(up * k)


@case(CASES)
def items_in_arithmetic_strings_and_results(compile):
    def f(t):
        k = t.max().item()
        return t / k, k, int(k), f"{k:.2f}", {"k": k}, k > 2, bool(t[0]), float(t[1]), t.tolist()

    f = compile(f)
    for t in (up, up, down, up * 1.5, up * 3, up):
        yield f(t)


@case(CASES)
def items_as_sizes_and_indices(compile):
    def f(n, t):
        k = int(n)
        return torch.zeros(k), t[:k], t[k - 1], list(range(k)), t.repeat(k)

    f = compile(f)
    for k in (1, 2, 3, 2, 1, 3):
        yield f(torch.tensor(k), up)


@case(CASES)
def shapes_that_depend_on_data(compile):
    def f(t):
        i = t.nonzero().flatten()
        u, counts = torch.unique(t, return_counts=True)
        return t[t > 1], i, i.shape[0], u, counts, torch.where(t > 1)[0].numel() + 1

    f = compile(f)
    for t in (up, up, down, torch.zeros(3), torch.ones(3) * 2):
        yield f(t)


@case(CASES)
def truth_of_tensors_in_python_operators(compile):
    def f(a, b):
        return (
            max(a.sum(), b.sum()),
            sorted([a[0], b[0], a[1]]),
            a.sum() in [torch.tensor(6.0)],
            not a.any(),
            a.sum() > 0 and b.sum() > 0,
            [v for v in a if v > 1],
        )

    f = compile(f)
    for a, b in ((up, down), (down, up), (up, up), (up * 0, down)):
        yield f(a, b)


@case(CASES)
def shapes_that_do_not_fit_after_a_change(compile):
    kept = {"calls": 0, "total": torch.zeros(3)}

    def draw(t):
        kept["calls"] += 1
        t = torch.randn_like(t)
        return t + t[t > 0]

    def change(t):
        kept["calls"] += 1
        kept["total"] += t
        chosen = t[t > 0]
        kept["total"].mul_(2)
        return t + chosen

    draw, change = compile(draw), compile(change)
    for _ in range(12):
        yield attempt_at(draw, up), kept
    for t in (up, up, down, up, torch.tensor([1.0, 2.0, -1.0]), down, up):
        yield attempt_at(change, t), kept


@case(CASES)
def unpacking_and_iterating(compile):
    def f(t):
        a, b, *rest = t
        total = 0
        for i, row in enumerate(t):
            total = total + row * i
        return a, b, rest, total, len(t), list(zip(t, t.tolist(), strict=True))

    f = compile(f)
    for t in (up, down, torch.arange(5.0), up):
        yield f(t)


@case(CASES)
def numpy_in_the_middle(compile):
    def f(t):
        a = (t * 2).numpy()
        a = np.where(a > 2, a, 0) + a.mean()
        return torch.from_numpy(a) * 2, a.shape, np.asarray(t)

    f = compile(f)
    for t in (up, up, down, up * 2):
        yield f(t)


@case(CASES, refused="an array that follows from data is written to")
def numpy_shares_memory(compile):
    def f(t):
        a = t.numpy()
        a += 1
        return t * 2

    f = compile(f)
    for _ in range(3):
        t = up.clone()
        yield f(t), t


@case(CASES)
def assertions_and_errors(compile):
    def f(t):
        assert t.sum() > -100, f"sum is {t.sum():.1f}"
        if (t > 100).any():
            raise ValueError(f"too large: {t.max().item()}")
        return torch.log(t.abs() + 1)

    f = compile(f)
    for t in (up, up * 1000, up, down * 1000, down, up * 2000, up):
        yield attempt(f, t)


@case(CASES)
def data_read_after_an_effect_of_the_call(compile):
    log = []

    def f(t):
        log.append("start")
        t.add_(1)
        if t.sum() > 10:
            log.append("big")
            return t * 2
        log.append("small")
        return t

    f = compile(f)
    for k in (1.0, 1.0, 3.0, 1.0, 3.0, 3.0):
        t = up * k
        yield f(t), t, log


@case(CASES)
def dropout_and_sampling(compile):
    m = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5))

    def f(t):
        return m(t) + torch.rand(8), torch.randint(0, 10, (2,)), torch.randperm(4), t.bernoulli(0.5)

    f = compile(f)
    for _ in range(4):
        yield f(up.sigmoid())


@case(CASES)
def draws_and_a_branch_on_them(compile):
    def f(t):
        k = torch.rand(())
        if k > 0.5:
            return t * torch.randn(3)
        return t + k

    f = compile(f)
    for _ in range(8):
        yield f(up)


@case(CASES)
def generators_of_the_user(compile):
    g = torch.Generator().manual_seed(5)
    f = compile(lambda t: t + torch.rand(3, generator=g))
    for _ in range(3):
        yield f(up), g.get_state()


@case(CASES)
def seeds_set_inside(compile):
    def f(t):
        torch.manual_seed(7)
        return t + torch.rand(3)

    f = compile(f)
    for _ in range(3):
        yield f(up), torch.rand(2)


@case(CASES)
def seeds_between_draws_and_before_a_branch(compile):
    def f(t, seed):
        first = torch.rand(3)
        generator = torch.manual_seed(seed)
        second = torch.rand(3)
        torch.manual_seed(seed)
        third = F.dropout(t, 0.5, generator is not None)
        if (first + second).sum() > 3:
            return first, third
        return second, third, generator is torch.default_generator

    f = compile(f)
    for seed in (1, 2, 1, 3, 3, 2, 1, 3):
        yield f(up, seed), torch.rand(2)


@case(CASES)
def seeds_of_data_and_of_counters(compile):
    layer = nn.Linear(3, 3)
    layer.calls = 0

    def f(t):
        layer.calls += 1
        torch.manual_seed(layer.calls)
        a = torch.rand(3)
        torch.manual_seed(int(t.sum().item()))
        return layer(t) * a + torch.rand(3)

    f = compile(f)
    for k in (1, 2, 1, 3, 1, 1):
        yield f(up * k), torch.rand(2), layer.calls


@case(CASES)
def python_and_numpy_random(compile):
    def f(t):
        if random.random() < 0.5:
            t = t * random.uniform(1, 2)
        order = [0, 1, 2]
        random.shuffle(order)
        return t[order] + random.choice([1, 2, 3]) + float(np.random.rand()), order

    f = compile(f)
    for _ in range(6):
        yield f(up)


@case(CASES)
def stochastic_depth(compile):
    layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(3))

    def f(t):
        kept = []
        for i, layer in enumerate(layers):
            if random.random() < 0.7:
                t = layer(t)
                kept.append(i)
        return t, kept

    f = compile(f)
    for _ in range(8):
        yield f(up)


@case(CASES)
def early_exit_and_masks(compile):
    heads = nn.ModuleList(nn.Linear(3, 2) for _ in range(3))

    def f(t):
        for i, head in enumerate(heads):
            p = F.softmax(head(t), -1)
            if p.max() > 0.7:
                break
        return p, i

    f = compile(f)
    for k in (1.0, 0.1, 5.0, -3.0, 1.0, 0.1):
        yield f(up * k)


@case(CASES)
def tensors_equal_and_close(compile):
    f = compile(lambda a, b: (torch.equal(a, b), torch.allclose(a, b), (a == b).all().item()))
    for a, b in ((up, up), (up, down), (up, up.clone()), (up, up + 1e-9)):
        yield f(a, b)


@case(CASES)
def printing_a_tensor(compile):
    f = compile(lambda t: (repr(t * 2), str(t.sum()), f"{t.mean():.3f}", t.sum().__format__(".2f")))
    for t in (up, down, up):
        yield f(t)


@case(CASES)
def shapes_of_packed_sequences(compile):
    def f(t, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(t, lengths, batch_first=True)
        return packed.batch_sizes.shape[0], nn.utils.rnn.pad_packed_sequence(packed)

    f = compile(f)
    for lengths in ([3, 2], [3, 2], [2, 1], [3, 3], [2, 1], [1, 1]):
        yield f(torch.arange(18.0).reshape(2, 3, 3), torch.tensor(lengths))


@torch.library.custom_op("magpy_tests::positive", mutates_args=())
def positive(t: torch.Tensor) -> torch.Tensor:
    """An operator of the program's own, whose result is as long as there are positive numbers."""
    return t[t > 0]


@positive.register_fake
def _(t):
    return t.new_empty(torch.library.get_ctx().new_dynamic_size())


@case(CASES)
def shapes_that_an_operator_of_the_program_makes(compile):
    def f(t):
        p = torch.ops.magpy_tests.positive(t)
        return p * 2, p.shape[0], torch.zeros(p.shape[0])

    f = compile(f)
    for values in ([1.0, -1.0, 2.0], [1.0, -1.0, 2.0], [1.0, 2.0, 3.0], [-1.0, 1.0, 1.0]):
        yield f(torch.tensor(values))


@case(CASES)
def generators_of_an_entry_that_is_left(compile):
    held = torch.Generator().manual_seed(1)

    def given(t, g):
        r = torch.rand(1, generator=g)
        return (r * 2).tolist() if (r + t).sum() > 0 else r.tolist()

    def in_place(t, g):
        b = torch.zeros(2)
        b.normal_(generator=held)
        return b * 2 if (b + t).sum() > 0 else b

    def fits(t, g):
        r = torch.rand(2, generator=held)
        return (t[t > 0].view(2) * r).tolist()

    g = torch.Generator().manual_seed(0)
    for f in (given, in_place):
        f = compile(f)
        for v in (0.0, 0.0, -15.0, 0.0, -15.0):
            yield f(torch.tensor(v), g), g.get_state(), held.get_state()
    f = compile(fits)
    for values in ([1.0, 1.0, -1.0], [1.0, 1.0, -2.0], [1.0, 1.0, 1.0], [1.0, -1.0, 1.0]):
        yield attempt(f, torch.tensor(values), g), held.get_state()


@case(CASES, compilers="AOTAutograd does not take sparse tensors")
def sparse_tensors_of_an_entry_that_is_left(compile):
    def f(s, t):
        s.mul_(2)
        return t * 2 if s.to_dense().sum() * t > 0 else t * 3

    f = compile(f)
    for s in (torch.eye(2).to_sparse(), torch.eye(2).to_sparse().coalesce()):
        for v in (1.0, 1.0, -1.0, 1.0, -1.0):
            yield f(s, torch.tensor(v)), s.to_dense(), s.is_coalesced()
    s = torch.eye(2).to_sparse_csr()
    for v in (1.0, 1.0, -1.0, 1.0, -1.0):
        yield f(s, torch.tensor(v)), s.to_dense()


test_data = check_all(CASES)
