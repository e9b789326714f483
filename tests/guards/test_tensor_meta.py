"""`_tensor.TensorMeta`, packs, overlap: which tensors are like the recorded one.

Owns: what `csrc/tensor/meta` compares, alone and through `_interp.Guard`, and how a difference is
told.  Does not own: torch's global state (`test_torch_state.py`), checks without tensors
(`tests/interp`).
"""

from __future__ import annotations

import gc
import random
import sys
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

from magpy import _interp, _tensor


class Sub(torch.Tensor):
    pass


def base() -> torch.Tensor:
    return torch.zeros(2, 3)


def forward_gradient() -> torch.Tensor:
    return torch.autograd.forward_ad.make_dual(base(), base())


SAME: dict[str, Callable[[], torch.Tensor]] = {
    "fresh": base,
    "other values": lambda: torch.ones(2, 3),
    "slice with the same strides": lambda: torch.zeros(5, 3)[1:3],
    "with a version": lambda: base().add_(1),
    "made under autocast": lambda: autocast(base),
    "made without grad": lambda: no_grad(base),
    "view": lambda: torch.zeros(6).view(2, 3),
    "detached": lambda: base().requires_grad_().detach(),
}

DIFFERENT: dict[str, tuple[Callable[[], Any], str]] = {
    "sizes": (lambda: torch.zeros(4, 3), "shape [4, 3] instead of [2, 3]"),
    "fewer dimensions": (lambda: torch.zeros(2), "shape [2] instead of [2, 3]"),
    "no dimensions": (lambda: torch.tensor(0.0), "shape [] instead of [2, 3]"),
    "strides": (lambda: torch.zeros(3, 2).t(), "strides [1, 2] instead of [3, 1]"),
    "dtype": (lambda: base().double(), "dtype Double instead of Float"),
    "requires_grad": (lambda: base().requires_grad_(), "requires_grad True instead of False"),
    "device": (lambda: base().to("meta"), "device meta instead of cpu"),
    "layout": (lambda: base().to_sparse(), "layout Sparse instead of Strided"),
    "parameter": (lambda: torch.nn.Parameter(base()), "class Parameter instead of Tensor"),
    "subclass": (lambda: base().as_subclass(Sub), "class Sub instead of Tensor"),
    "no tensor": (lambda: [1, 2], "type list instead of Tensor"),
    "inference": (lambda: inference(base), "is_inference True instead of False"),
    "forward gradient": (lambda: dual(), "a tensor with a forward-mode gradient"),
}


def no_grad(f: Callable[[], torch.Tensor]) -> torch.Tensor:
    with torch.no_grad():
        return f()


def autocast(f: Callable[[], torch.Tensor]) -> torch.Tensor:
    with torch.autocast("cpu"):
        return f()


def inference(f: Callable[[], torch.Tensor]) -> torch.Tensor:
    with torch.inference_mode():
        return f()


LEVELS: list[Any] = []


def dual() -> torch.Tensor:
    level = torch.autograd.forward_ad.dual_level()
    level.__enter__()
    LEVELS.append(level)
    return forward_gradient()


@pytest.fixture(autouse=True)
def leave_dual_levels() -> Any:
    yield
    while LEVELS:
        LEVELS.pop().__exit__(None, None, None)


def guard_of(meta: _tensor.TensorMeta) -> _interp.Guard:
    return _interp.Guard(1, (), 1, [("tensor", 0, meta)], {})


@pytest.mark.parametrize("make", SAME.values(), ids=SAME)
def test_like_tensor_matches(make: Callable[[], torch.Tensor]) -> None:
    meta, t = _tensor.TensorMeta(base()), make()
    assert meta.matches(t)
    assert meta.difference(t) is None
    assert guard_of(meta).check((t,))


@pytest.mark.parametrize(("make", "text"), DIFFERENT.values(), ids=DIFFERENT)
def test_unlike_tensor_is_refused_with_words(make: Callable[[], Any], text: str) -> None:
    meta, t = _tensor.TensorMeta(base()), make()
    assert not meta.matches(t)
    assert text in str(meta.difference(t))
    g = guard_of(meta)
    assert not g.check((t,))
    assert g.explain((t,)) == (0, meta.difference(t))


def test_complex_views_are_told_apart() -> None:
    t = torch.zeros(2, dtype=torch.complex64)
    meta = _tensor.TensorMeta(t)
    assert meta.difference(t.conj()) == "is_conj True instead of False"
    imaginary = _tensor.TensorMeta(t.imag)
    assert imaginary.difference(t.conj().imag) == "is_neg True instead of False"


def test_inference_tensors_that_count_their_changes_are_told_apart() -> None:
    plain = inference(base)
    counting = plain.detach()  # outside of inference mode, where it can be changed in place
    meta, other = _tensor.TensorMeta(plain), _tensor.TensorMeta(counting)
    assert meta.matches(inference(base))
    assert other.matches(inference(base).detach())
    assert meta.difference(counting) == "an inference tensor with a version"
    assert other.difference(plain) == "an inference tensor without a version"
    assert not guard_of(meta).check((counting,))
    assert not guard_of(other).check((plain,))


def test_leaf_and_result_are_told_apart() -> None:
    leaf = base().requires_grad_()
    meta = _tensor.TensorMeta(leaf)
    assert meta.matches(base().requires_grad_())
    assert meta.difference(leaf * 2) == "is_leaf False instead of True"
    result = _tensor.TensorMeta(leaf * 2)
    assert result.matches(leaf + 1)
    assert "view" in str(result.difference((leaf * 2).view(2, 3)))


def test_gradient_of_the_tensor_is_not_looked_at() -> None:
    p = torch.nn.Parameter(base())
    meta = _tensor.TensorMeta(p)
    p.sum().backward()
    assert p.grad is not None
    assert meta.matches(p)


def test_offset_is_compared_only_when_asked_for() -> None:
    t = torch.zeros(10)
    assert _tensor.TensorMeta(t[2:5]).matches(t[4:7])
    meta = _tensor.TensorMeta(t[2:5], offset=True)
    assert meta.matches(torch.zeros(10)[2:5])
    assert meta.difference(t[4:7]) == "storage offset 4 instead of 2"


def test_dynamic_dims_are_not_compared() -> None:
    meta = _tensor.TensorMeta(base(), dims=1)
    assert meta.matches(torch.zeros(7, 3))
    assert not meta.matches(torch.zeros(7, 4))
    assert _tensor.TensorMeta(base(), dims=(1,)).matches(torch.zeros(2, 9))
    assert not _tensor.TensorMeta(base(), dims=(1,)).matches(torch.zeros(2, 18)[:, ::2])
    assert _tensor.TensorMeta(base(), dims=3).matches(torch.zeros(4, 5))


def test_dynamic_dims_keep_the_order_of_strides() -> None:
    x = torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last)
    meta = _tensor.TensorMeta(x, dims=(0, 2, 3))
    assert meta.matches(torch.zeros(3, 3, 7, 8).to(memory_format=torch.channels_last))
    assert not meta.matches(torch.zeros(3, 3, 7, 8))
    assert not meta.matches(
        torch.zeros(3, 3, 7, 8).to(memory_format=torch.channels_last)[:, :, ::2]
    )


def test_strides_of_single_elements_follow_too() -> None:
    x = torch.zeros(2, 1, 4, 5)
    meta = _tensor.TensorMeta(x, dims=(0, 2))
    assert meta.inner == (1, 2, 3, -1)
    assert meta.matches(torch.zeros(3, 1, 7, 5))
    # Operators take it to be in another memory format.
    assert not meta.matches(torch.zeros(3, 1, 7, 5).to(memory_format=torch.channels_last))
    meta = _tensor.TensorMeta(x.to(memory_format=torch.channels_last), dims=(0, 2))
    assert meta.matches(torch.zeros(3, 1, 7, 5).to(memory_format=torch.channels_last))
    assert not meta.matches(torch.zeros(3, 1, 7, 5))


def test_free_strides_are_not_compared() -> None:
    meta = _tensor.TensorMeta(torch.zeros(3, 6)[:, :4], strides=1)
    assert meta.matches(torch.zeros(3, 9)[:, :4])
    assert meta.matches(torch.zeros(3, 4))
    assert not meta.matches(torch.zeros(3, 9)[:, :5])
    assert not meta.matches(torch.zeros(4, 3).T)
    meta = _tensor.TensorMeta(torch.zeros(2, 3, 6)[:, :, :4], strides=(1,), dims=(2,))
    assert meta.inner == (1, -1, -1)
    assert meta.matches(torch.zeros(2, 3, 9)[:, :, :5])
    assert not meta.matches(torch.zeros(2, 4, 9)[:, :3, :5])


def test_expanded_dimensions_do_not_vary() -> None:
    meta = _tensor.TensorMeta(torch.zeros(4).expand(3, 4), dims=3)
    assert meta.matches(torch.zeros(5).expand(6, 5))
    assert not meta.matches(torch.zeros(6, 5))


def test_many_dimensions() -> None:
    t = torch.zeros([2] * 8)
    meta = _tensor.TensorMeta(t)
    assert meta.matches(torch.ones([2] * 8))
    assert not meta.matches(torch.zeros([2] * 7 + [3]))
    assert meta.shape == (2,) * 8
    assert meta.strides == t.stride()


def test_sparse_tensor_matches_by_size() -> None:
    meta = _tensor.TensorMeta(base().to_sparse())
    assert meta.matches(torch.eye(2, 3).to_sparse())
    assert not meta.matches(torch.eye(3).to_sparse())
    assert not meta.matches(base())


def test_opaque_tensors_never_match() -> None:
    nested = torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)])
    meta = _tensor.TensorMeta(nested)
    assert meta.opaque == "a nested tensor"
    assert not meta.matches(nested)
    assert "cannot be compared" in str(meta.difference(nested))

    seen: list[Any] = []

    def inner(x: torch.Tensor) -> torch.Tensor:
        seen.append(_tensor.TensorMeta(x).opaque)
        seen.append(_tensor.TensorMeta(x[0]).matches(x[0]))
        return x

    torch.vmap(inner)(base())
    assert seen == ["a tensor inside a functorch transform (vmap, grad, ...)", False]


def test_subclass_that_pretends_is_no_tensor() -> None:
    class Pretends:
        __class__ = torch.Tensor  # type: ignore[assignment]

    assert not _tensor.TensorMeta(base()).matches(Pretends())
    assert "instead of" in str(_tensor.TensorMeta(base()).difference(Pretends()))
    with pytest.raises(TypeError, match="a tensor is needed"):
        _tensor.TensorMeta(Pretends())  # type: ignore[arg-type]


def test_subclass_code_is_not_run() -> None:
    class Loud(torch.Tensor):
        @classmethod
        def __torch_function__(cls, *args: Any, **kwargs: Any) -> Any:
            raise AssertionError("__torch_function__ was called")

    t = base().as_subclass(Loud)
    meta = _tensor.TensorMeta(t)
    assert meta.matches(base().as_subclass(Loud))
    assert not meta.matches(torch.zeros(4).as_subclass(Loud))
    assert _tensor.overlaps(t, t)


def test_repr_is_short() -> None:
    assert repr(_tensor.TensorMeta(base(), dims=1)) == "TensorMeta(Tensor, [*, 3], Float, cpu)"


@pytest.mark.parametrize(
    "kwargs", [{"dims": "x"}, {"dims": (99,)}, {"dims": -1}, {"offset": True, "more": 1}], ids=str
)
def test_bad_options_are_refused(kwargs: Any) -> None:
    with pytest.raises((TypeError, ValueError, OverflowError)):
        _tensor.TensorMeta(base(), **kwargs)


# ------------------------------------------------ packs of parameters


def pack_of(tensors: list[torch.Tensor]) -> _interp.Guard:
    return _interp.Guard(0, (), 0, [], {"tensors": [(t, _tensor.TensorMeta(t)) for t in tensors]})


def replace_data(p: Any) -> None:
    p.data = torch.zeros(4, 4)


def swap(p: Any) -> None:
    torch.utils.swap_tensors(p, torch.nn.Parameter(torch.zeros(9)))


def become(p: Any) -> None:
    p.__class__ = type("Other", (torch.nn.Parameter,), {})


def set_(p: Any) -> None:
    with torch.no_grad():
        p.set_(torch.zeros(7))


def resize(p: Any) -> None:
    p.requires_grad_(False).resize_(11)
    p.requires_grad_(True)


def swap_for(p: Any, data: torch.Tensor) -> None:
    torch.utils.swap_tensors(p, torch.nn.Parameter(data))


def in_place_gradient(p: Any) -> None:
    p.requires_grad_(False)
    p.mul_(torch.ones((), requires_grad=True))


PACK_CHANGES: dict[str, Callable[[Any], Any]] = {
    "data": replace_data,
    "dtype": lambda p: setattr(p, "data", p.data.double()),
    "requires_grad": lambda p: p.requires_grad_(False),
    "requires_grad attribute": lambda p: setattr(p, "requires_grad", False),
    "gradient function": in_place_gradient,
    "swap": swap,
    "class": become,
    "size": lambda p: setattr(p, "data", p.data.new_zeros(1)),
    "set_": set_,
    "resize_": resize,
    "unsqueeze": lambda p: setattr(p, "data", p.data.unsqueeze(0)),
    "device": lambda p: swap_for(p, p.data.to("meta")),
    "layout": lambda p: swap_for(p, p.data.to_sparse()),
}


@pytest.mark.parametrize("change", PACK_CHANGES.values(), ids=PACK_CHANGES)
@pytest.mark.parametrize(
    "shape",
    [(2, 3), (2, 3, 1, 1), (5,), (), (2, 1, 3), (1, 2, 1, 2, 1), (1, 2, 1, 2, 1, 2)],
    ids=str,
)
def test_pack_sees_any_change_and_names_the_tensor(
    change: Callable[[Any], Any], shape: tuple[int, ...]
) -> None:
    tensors: list[Any] = [torch.nn.Parameter(torch.zeros(shape)) for _ in range(50)]
    g = pack_of(tensors)
    assert g.check(())
    assert g.check(())
    change(tensors[17])
    assert not g.check(())
    where, text = g.explain(())  # type: ignore[misc]
    assert where == ("tensors", 17, -1)
    assert text


def test_pack_of_many_forms_names_the_tensor() -> None:
    tensors: list[Any] = []
    for i in range(60):
        t = torch.zeros([1 + i % 5] * (i % 7), dtype=(torch.float32, torch.float64)[i % 2])
        tensors.append((t, torch.nn.Parameter(t), t.requires_grad_(), Sub(t))[i % 4])
    g = pack_of(tensors)
    assert g.check(())
    for i in range(60):
        data = tensors[i].data
        tensors[i].data = torch.zeros(9, 9)
        assert not g.check(())
        assert g.explain(())[0] == ("tensors", i, -1)  # type: ignore[index]
        tensors[i].data = data
        assert g.check(())


def test_pack_sees_a_gradient_of_a_tensor_without_autograd_metadata() -> None:
    buffers = [torch.zeros(3) for _ in range(20)]
    g = pack_of(buffers)
    assert g.check(())
    buffers[7].mul_(torch.ones(3, requires_grad=True))
    assert g.explain(()) == (("tensors", 7, -1), "requires_grad True instead of False")
    assert not g.check(())
    buffers[7].detach_()
    assert g.check(())
    buffers[8].requires_grad_()
    assert not g.check(())
    buffers[8].requires_grad_(False)
    assert g.check(())


def test_pack_sees_forward_gradients() -> None:
    p = torch.nn.Parameter(torch.zeros(3))
    g = pack_of([p, torch.zeros(3)])
    assert g.check(())
    with torch.autograd.forward_ad.dual_level():
        p_dual = torch.autograd.forward_ad.make_dual(p, torch.ones(3))
        assert pack_of([p_dual]).check(()) is False
        assert g.check(())
    assert g.check(())


def test_pack_swapped_tensor_whose_other_half_is_gone() -> None:
    tensors: list[Any] = [torch.nn.Parameter(torch.zeros(2, 3)) for _ in range(20)]
    g = pack_of(tensors)
    for k in range(3):
        for p in tensors:
            torch.utils.swap_tensors(p, torch.nn.Parameter(torch.full((2, 3), float(k))))
        gc.collect()
        filler = [torch.nn.Parameter(torch.zeros(9)) for _ in range(40)]
        assert g.check(())
        del filler
    torch.utils.swap_tensors(tensors[4], torch.nn.Parameter(torch.zeros(9)))
    gc.collect()
    assert g.explain(())[0] == ("tensors", 4, -1)  # type: ignore[index]
    assert not g.check(())


def test_pack_sees_transposed_data() -> None:
    p = torch.nn.Parameter(torch.zeros(3, 3))
    g = pack_of([p])
    assert g.check(())
    p.data = p.data.t()
    assert g.explain(()) == (("tensors", 0, -1), "strides [1, 3] instead of [3, 1]")


# Sizes, the strides that are recorded, and others.
STRIDES = [
    ((3, 3), (3, 1), (1, 3)),
    ((3, 3), (3, 1), (4, 1)),
    ((3, 3), (1, 3), (3, 1)),
    ((3, 3), (1, 3), (1, 4)),
    ((3, 3), (0, 1), (0, 2)),
    ((4,), (1,), (2,)),
    ((4,), (2,), (1,)),
    ((4,), (0,), (1,)),
    ((1, 3), (3, 1), (5, 1)),
    ((3, 1), (1, 1), (1, 7)),
    ((0, 3), (3, 1), (1, 1)),
    ((2, 3, 4, 4), (48, 16, 4, 1), (48, 1, 12, 3)),
    ((2, 3, 4, 4), (48, 1, 12, 3), (48, 16, 4, 1)),
    ((2, 3, 1, 1), (3, 1, 1, 1), (3, 1, 3, 3)),
    ((2, 2, 2, 2, 2), (16, 8, 4, 2, 1), (8, 16, 4, 2, 1)),
]


@pytest.mark.parametrize(("sizes", "before", "after"), STRIDES, ids=str)
def test_pack_sees_other_strides(
    sizes: tuple[int, ...], before: tuple[int, ...], after: tuple[int, ...]
) -> None:
    memory = torch.zeros(200)
    tensors = [memory.as_strided(sizes, before) for _ in range(20)]
    g = pack_of(tensors)
    for _ in range(2):
        assert g.check(())
        assert g.check(())
        tensors[7].as_strided_(sizes, after)
        assert not g.check(())
        assert g.explain(())[0] == ("tensors", 7, -1)  # type: ignore[index]
        tensors[7].as_strided_(sizes, before)
        assert g.check(())
        tensors[7].data = memory.as_strided(sizes, after)
        assert not g.check(())
        tensors[7].data = memory.as_strided(sizes, before)


def test_pack_survives_new_values_and_equal_data() -> None:
    tensors: list[Any] = [torch.nn.Parameter(torch.zeros(2, 3)) for _ in range(20)]
    g = pack_of(tensors)
    for p in tensors:
        p.data = torch.ones(2, 3)
        p.sum().backward()
    assert g.check(())
    torch.utils.swap_tensors(tensors[3], torch.nn.Parameter(torch.ones(2, 3)))
    gc.collect()
    assert g.check(())
    assert g.check(())


def test_pack_of_other_kinds_of_tensors() -> None:
    p = torch.nn.Parameter(base())
    tensors = [
        base(),
        p * 2,
        (p * 2)[0],
        base().to_sparse(),
        torch.zeros(2, 3, 4).to("meta"),
        torch.tensor(3),
    ]
    g = pack_of(tensors)
    assert g.check(())
    tensors[4].unsqueeze_(0)
    assert g.explain(())[0] == ("tensors", 4, -1)  # type: ignore[index]


def test_guard_keeps_tensors_until_it_dies() -> None:
    t = base()
    ref = weakref.ref(t)
    g = pack_of([t])
    del t
    gc.collect()
    assert ref() is not None
    assert g.check(())
    del g
    gc.collect()
    assert ref() is None


# ------------------------------------------------ shared memory


def test_overlap_is_by_bytes() -> None:
    t = torch.zeros(4, 4)
    assert _tensor.overlaps(t, t)
    assert _tensor.overlaps(t, t[1]) == 1
    assert _tensor.overlaps(t, t[0]) == 2
    assert _tensor.overlaps(t.flatten()[1:], t[0]) == 1
    assert not _tensor.overlaps(t[0], t[1])
    assert not _tensor.overlaps(t[:2], t[2:])
    assert _tensor.overlaps(t[:3], t[2:])
    assert _tensor.overlaps(t[:, 0], t[:, 1])  # interleaved: counts as overlapping
    assert not _tensor.overlaps(t, base())
    assert not _tensor.overlaps(t[:0], t)
    assert _tensor.overlaps(t, t.view(torch.int32))


def test_overlap_of_two_storages_over_one_memory() -> None:
    numpy = pytest.importorskip("numpy")
    a = numpy.zeros(8, dtype=numpy.float32)
    assert _tensor.overlaps(torch.from_numpy(a), torch.from_numpy(a)) == 4
    assert _tensor.overlaps(torch.from_numpy(a), torch.from_numpy(a[4:])) == 3
    assert not _tensor.overlaps(torch.from_numpy(a[:4]), torch.from_numpy(a[4:]))
    g = _interp.Guard(2, (), 2, [("overlap", (0, 1), ((0, 1, 4),), 1)], {})
    x = torch.from_numpy(a)
    assert g.check((x, torch.from_numpy(a)))
    assert not g.check((x, x.data)), "one storage shows both"


def test_overlap_of_sparse_parts() -> None:
    s = torch.eye(3).to_sparse().coalesce()
    assert _tensor.overlaps(s, s.values())
    assert _tensor.overlaps(s.indices(), s)
    assert not _tensor.overlaps(s, torch.eye(3).to_sparse())


def test_overlap_check_wants_exactly_these_pairs() -> None:
    t = torch.zeros(4, 4)
    g = _interp.Guard(3, (), 3, [("overlap", (0, 1, 2), ((0, 2, 1),), 3)], {})
    assert g.check((t, base(), t[1]))
    assert not g.check((t, base(), t[0])), "they start together"
    assert not g.check((t, base(), base()))
    assert not g.check((t, t[0], t[1]))
    assert g.explain((t, t[0], t[1])) == (0, "tensors share memory in another way")
    with pytest.raises(ValueError, match="pair"):
        _interp.Guard(1, (), 1, [("overlap", (0,), ((0, 1, 1),), 1)], {})
    for how in (0, 5):
        with pytest.raises(ValueError, match="1 to 4"):
            _interp.Guard(2, (), 2, [("overlap", (0, 1), ((0, 1, how),), 1)], {})
    for m in (-1, 2):
        with pytest.raises(ValueError, match="so many"):
            _interp.Guard(1, (), 1, [("overlap", (0,), (), m)], {})


def test_overlap_check_leaves_tensors_alone_that_are_not_written() -> None:
    t = torch.zeros(4, 4)
    g = _interp.Guard(3, (), 3, [("overlap", (0, 1, 2), (), 1)], {})
    assert g.check((base(), t, t[1]))
    assert not g.check((t[1], base(), t))
    assert not g.check((t, t[0], base()))


def test_apart_says_what_pairs_say() -> None:
    buffer = torch.zeros(4000)
    generator = random.Random(0)

    def some() -> torch.Tensor:
        kind, at = generator.random(), generator.randrange(3900)
        if kind < 0.6:
            return buffer[at : at + generator.randrange(9)]
        if kind < 0.8:
            return base()
        if kind < 0.9:
            return torch.zeros(2, device="meta")
        return torch.eye(2).to_sparse()

    seen = set()
    for _ in range(400):
        n = generator.randrange(30)
        tensors, m = [some() for _ in range(n)], generator.randrange(n + 1)
        pairs = ((i, j) for i in range(m) for j in range(i + 1, n))
        want = not any(_tensor.overlaps(tensors[i], tensors[j]) for i, j in pairs)
        assert _tensor.apart(tensors, m) == want
        seen.add((want, m * n > 64))
    assert len(seen) == 4
    with pytest.raises(ValueError, match="from 0"):
        _tensor.apart([base()], 2)
    with pytest.raises(TypeError, match="tensor"):
        _tensor.apart([3], 1)


def test_version_and_storage() -> None:
    t = base()
    before = _tensor.tensor_version(t)
    t.add_(1)
    assert _tensor.tensor_version(t) == before + 1
    assert _tensor.tensor_version(inference(base)) == -1
    assert _tensor.storage_id(t) == _tensor.storage_id(t[1])
    assert _tensor.storage_id(t) != _tensor.storage_id(base())
    assert _tensor.storage_id(base().to_sparse()) == 0


def test_checks_leak_nothing() -> None:
    t = base()

    def run() -> None:
        meta = _tensor.TensorMeta(t)
        g = _interp.Guard(1, (), 1, [("tensor", 0, meta)], {"tensors": [(t, meta)]})
        for _ in range(10):
            g.check((t,))
            g.explain((3,))
            meta.difference(torch.zeros(9))

    run()
    before = sys.getrefcount(t), sys.getrefcount(torch.Tensor)
    for _ in range(100):
        run()
    assert (sys.getrefcount(t), sys.getrefcount(torch.Tensor)) == before


def test_the_gradient_of_a_tensor_is_an_operand() -> None:
    w, other = (torch.ones(2, requires_grad=True) for _ in range(2))
    w.grad = torch.zeros(2)
    meta = _tensor.TensorMeta(w.grad)
    g = _interp.Guard(2, (), 3, [("gradient", 2, 0), ("tensor", 2, meta), ("same", 2, 1)], {})
    assert g.check((w, w.grad))
    assert not g.check((w, torch.zeros(2)))
    assert not g.check((other, w.grad))
    assert not g.check((1, w.grad))
    none = _interp.Guard(1, (), 2, [("gradient", 1, 0), ("leaf", 1, None)], {})
    assert none.check((other,))
    assert not none.check((w,))
    assert "not a tensor" in str(none.explain((1,)))
    constant = _interp.Guard(0, (), 1, [("gradient", 0, ("a", w)), ("tensor", 0, meta)], {})
    assert constant.check(())
    grad = w.grad
    before = sys.getrefcount(grad)
    for _ in range(100):
        constant.check(())
    after = sys.getrefcount(grad)
    assert after == before
    w.grad = None
    assert not constant.check(())
