"""Programs: tensor operations that carry their own surprises."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class InPlaceChain(nn.Module):
    """In-place operations on a copy and on a view of it."""

    def forward(self, x):
        y = x.clone()
        y[:, 0] = 5
        y[y > 2] = 2
        view = y.view(-1)
        view[1::2].mul_(3)
        y.t_()
        return y.add_(1).clamp_(min=0)


class ChangesInput(nn.Module):
    """Writes to the caller's tensor."""

    def forward(self, x):
        x += 1
        x[0].zero_()
        return x.sum()


class ReturnsInputAndView(nn.Module):
    """The result holds the argument itself, a view of it, and a parameter."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.rand(3))

    def forward(self, x):
        return x, x[0], x.view(-1), self.w, x.detach()


class FancyIndexing(nn.Module):
    def forward(self, x, index):
        rows = torch.arange(x.size(0)).unsqueeze(1)
        return x[rows, index], x[..., None, ::2], x[:, [0, -1]], x[1:, :-1][None]


class ScatterGather(nn.Module):
    def forward(self, x, index):
        picked = x.gather(1, index)
        counts = torch.zeros(x.size(0), x.size(1)).scatter_add_(1, index, torch.ones_like(picked))
        onehot = torch.zeros_like(x).scatter_(1, index[:, :1], 1.0)
        return picked, counts, onehot, x.index_select(0, index[:, 0])


class TopKSelect(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.k = k

    def forward(self, x):
        values, index = torch.topk(x, self.k, dim=-1)
        kept = torch.full_like(x, float("-inf")).scatter(-1, index, values)
        order = torch.argsort(x, dim=-1, descending=True, stable=True)
        return kept.softmax(-1), order, x.kthvalue(2).values, torch.median(x, -1)[0]


class EinsumMix(nn.Module):
    def __init__(self):
        super().__init__()
        self.core = nn.Parameter(torch.rand(2, 3, 4))

    def forward(self, a, b):
        bilinear = torch.einsum("bi,ijk,bj->bk", a, self.core, b)
        outer = torch.einsum("bi,bj->bij", a, b)
        return (
            bilinear,
            outer.diagonal(dim1=1, dim2=2),
            torch.tensordot(a, self.core, dims=([1], [0])),
        )


class WhereAndMasks(nn.Module):
    def forward(self, x):
        mask = x > x.mean()
        a = torch.where(mask, x, torch.zeros_like(x))
        b = x.masked_fill(~mask, -1).masked_scatter(mask, a.flatten())
        upper = torch.ones_like(x).triu(1).bool()
        return a * b, x * upper, (mask & ~upper).any(), mask.float().mean().round(decimals=3)


class ComplexNumbers(nn.Module):
    def forward(self, x):
        spectrum = torch.fft.rfft(x, dim=-1, norm="ortho")
        rotated = spectrum * torch.polar(torch.ones(spectrum.shape), torch.angle(spectrum))
        z = torch.view_as_complex(torch.stack([x, x.flip(-1)], -1))
        return (
            torch.fft.irfft(rotated, n=x.size(-1)),
            z.abs(),
            z.real,
            torch.view_as_real(z.conj().resolve_conj()),
        )


class DtypeDance(nn.Module):
    def forward(self, x):
        half = x.half().float()
        ints = (x * 10).int()
        packed = ints.to(torch.uint8) << 1
        return (
            half + ints,
            packed,
            x.double().sum().to(x),
            (ints % 3 == 0).type(torch.LongTensor),
            x.bfloat16(),
        )


class SplitAndStack(nn.Module):
    def forward(self, x):
        a, b, c = x.split([1, 2, 1], dim=1)
        parts = torch.chunk(x, 3, dim=0)
        first, *others = x.unbind(1)
        return torch.cat([c, b, a], 1), torch.stack(others[::-1], -1), torch.vstack(parts), first


class LegacyConstructors(nn.Module):
    """Constructors of old versions of torch."""

    def forward(self, x):
        a = torch.Tensor([1.0, 2.0, 3.0])
        b = x.new([4, 5, 6])
        c = torch.FloatTensor(3).fill_(0.5).type_as(x)
        d = torch.autograd.Variable(x.data, requires_grad=False)
        return a + b * c + d, x.new_tensor([1, 2]), torch.LongTensor([0, 2])


class Properties(nn.Module):
    """Reads of tensor properties that are operations or plain values."""

    def forward(self, x):
        scale = 2 if x.is_floating_point() and not x.is_cuda else 3
        y = x.T * scale + x.mT.data
        return (
            y.contiguous(),
            x.grad is None,
            x.is_leaf,
            x.ndim,
            tuple(x.stride()),
            x.element_size() * x.nelement(),
        )


class Statistics(nn.Module):
    def forward(self, x):
        var, mean = torch.var_mean(x, dim=0, unbiased=False)
        quantiles = torch.quantile(x, torch.tensor([0.25, 0.75]), dim=0)
        return (
            (x - mean) / var.sqrt(),
            quantiles,
            torch.histc(x, bins=4, min=0, max=1),
            x.norm(p=1, dim=1),
            torch.std(x),
        )


class LinearAlgebra(nn.Module):
    def forward(self, x):
        gram = x @ x.t() + torch.eye(x.size(0)) * 2
        chol = torch.linalg.cholesky(gram)
        solved = torch.linalg.solve(gram, x)
        return (
            chol,
            solved,
            torch.logdet(gram),
            torch.linalg.norm(x, dim=1),
            torch.cdist(x, x).fill_diagonal_(9),
        )


class RollFlipPad(nn.Module):
    def forward(self, x):
        shifted = torch.roll(x, shifts=(-1, 2), dims=(0, 1))
        padded = F.pad(x[None], (1, 1), mode="circular")[0]
        return (
            shifted + x.flip(0),
            padded,
            torch.rot90(x),
            x.repeat_interleave(2, 0),
            x.repeat(1, 2),
        )


class BroadcastGames(nn.Module):
    def forward(self, x, y):
        pairs = x[:, None, :] - y[None, :, :]
        distance = pairs.pow(2).sum(-1).sqrt()
        a, b = torch.broadcast_tensors(x[:, :1], y[:1])
        return distance.min(1), torch.cross(x, x.roll(1, 1), dim=1), a + b, torch.outer(x[0], y[0])


class AsStrided(nn.Module):
    """Frames of a signal as overlapping views."""

    def __init__(self, frame, hop):
        super().__init__()
        self.frame, self.hop = frame, hop
        self.register_buffer("window", torch.hann_window(frame))

    def forward(self, x):
        count = 1 + (x.size(-1) - self.frame) // self.hop
        frames = x.contiguous().as_strided(
            (x.size(0), count, self.frame), (x.size(-1), self.hop, 1)
        )
        return (frames * self.window).abs().sum(-1), torch.stft(
            x, 4, 2, 4, torch.ones(4), return_complex=True
        ).abs()


class OneHotAndBins(nn.Module):
    def forward(self, labels, values):
        hot = F.one_hot(labels, num_classes=4).float()
        counts = torch.bincount(labels.flatten(), minlength=4)
        buckets = torch.bucketize(values, torch.tensor([0.25, 0.5, 0.75]))
        return hot, counts, buckets, torch.cumsum(hot, 0).amax(0), torch.cummax(values, -1)[0]


class InPlaceOnAttribute(nn.Module):
    """Writes into a plain tensor attribute that is not a buffer."""

    def __init__(self):
        super().__init__()
        self.scratch = torch.zeros(2, 3)

    def forward(self, x):
        torch.mul(x, 2, out=self.scratch)
        self.scratch[0] += 1
        return self.scratch.clone(), self.scratch


class ChannelsLast(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 2, 3)

    def forward(self, x):
        x = x.to(memory_format=torch.channels_last)
        y = self.conv(x)
        return y, y.is_contiguous(memory_format=torch.channels_last)


class SparseMatmul(nn.Module):
    """A sparse adjacency matrix times features."""

    def __init__(self):
        super().__init__()
        index = torch.tensor([[0, 1, 2, 2], [1, 0, 1, 2]])
        self.adj = torch.sparse_coo_tensor(index, torch.ones(4), (3, 3)).coalesce()
        self.fc = nn.Linear(2, 2)

    def forward(self, x):
        return torch.spmm(self.adj, self.fc(x))


class GraphMessages(nn.Module):
    """Messages along edges with index_add and a degree normalisation."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2)

    def forward(self, x, edges):
        src, dst = edges
        out = torch.zeros_like(x).index_add_(0, dst, self.fc(x)[src])
        degree = torch.zeros(x.size(0)).scatter_add_(0, dst, torch.ones(dst.size(0)))
        return out / degree.clamp(min=1).unsqueeze(-1)


TESTCASES = [
    (InPlaceChain, lambda: ([], {}), lambda: ([torch.rand(3, 4) * 3], {}), True),
    (ChangesInput, lambda: ([], {}), lambda: ([torch.rand(3, 4)], {}), True),
    (ReturnsInputAndView, lambda: ([], {}), lambda: ([torch.rand(2, 3)], {}), True),
    (
        FancyIndexing,
        lambda: ([], {}),
        lambda: ([torch.rand(3, 4), torch.randint(0, 4, (3, 2))], {}),
        True,
    ),
    (
        ScatterGather,
        lambda: ([], {}),
        lambda: ([torch.rand(3, 4), torch.randint(0, 3, (3, 2))], {}),
        True,
    ),
    (TopKSelect, lambda: ([2], {}), lambda: ([torch.rand(3, 4)], {}), True),
    (EinsumMix, lambda: ([], {}), lambda: ([torch.rand(2, 2), torch.rand(2, 3)], {}), True),
    (WhereAndMasks, lambda: ([], {}), lambda: ([torch.rand(4, 4)], {}), True),
    (ComplexNumbers, lambda: ([], {}), lambda: ([torch.rand(2, 6)], {}), True),
    (DtypeDance, lambda: ([], {}), lambda: ([torch.rand(2, 3)], {}), True),
    (SplitAndStack, lambda: ([], {}), lambda: ([torch.rand(3, 4)], {}), True),
    (LegacyConstructors, lambda: ([], {}), lambda: ([torch.rand(2, 3)], {}), True),
    (Properties, lambda: ([], {}), lambda: ([torch.rand(3, 3)], {}), True),
    (Statistics, lambda: ([], {}), lambda: ([torch.rand(4, 3)], {}), True),
    (LinearAlgebra, lambda: ([], {}), lambda: ([torch.rand(3, 4)], {}), True),
    (RollFlipPad, lambda: ([], {}), lambda: ([torch.rand(3, 4)], {}), True),
    (BroadcastGames, lambda: ([], {}), lambda: ([torch.rand(2, 3), torch.rand(4, 3)], {}), True),
    (AsStrided, lambda: ([4, 2], {}), lambda: ([torch.rand(2, 10)], {}), True),
    (
        OneHotAndBins,
        lambda: ([], {}),
        lambda: ([torch.randint(0, 4, (3, 2)), torch.rand(5)], {}),
        True,
    ),
    (InPlaceOnAttribute, lambda: ([], {}), lambda: ([torch.rand(2, 3)], {}), True),
    (ChannelsLast, lambda: ([], {}), lambda: ([torch.rand(2, 2, 5, 5)], {}), True),
    (SparseMatmul, lambda: ([], {}), lambda: ([torch.rand(3, 2)], {}), True),
    (
        GraphMessages,
        lambda: ([], {}),
        lambda: ([torch.rand(4, 2), torch.tensor([[0, 1, 2, 3], [1, 2, 0, 2]])], {}),
        True,
    ),
]
