"""Programs: attention in the shapes that projects give it."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class ManualMultiHead(nn.Module):
    """Multi-head attention with view and permute, weights returned as well."""

    def __init__(self, dim, heads):
        super().__init__()
        assert dim % heads == 0, f"{dim} is not divisible by {heads}"
        self.heads = heads
        self.head_dim = dim // heads
        self.q, self.k, self.v = (nn.Linear(dim, dim) for _ in range(3))
        self.out = nn.Linear(dim, dim)

    def split(self, x):
        new_shape = x.size()[:-1] + (self.heads, self.head_dim)
        return x.view(*new_shape).permute(0, 2, 1, 3)

    def forward(self, x, mask=None):
        q, k, v = map(self.split, (self.q(x), self.k(x), self.v(x)))
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(self.head_dim)
        if mask is not None:
            scores = scores + (1.0 - mask[:, None, None, :]) * -10000.0
        weights = scores.softmax(-1)
        context = (weights @ v).permute(0, 2, 1, 3).contiguous()
        return self.out(context.view(*context.shape[:2], -1)), weights


class CausalWithBuffer(nn.Module):
    """A lower triangle kept as a buffer and sliced to the sequence."""

    def __init__(self, dim, block=16):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.register_buffer(
            "bias", torch.tril(torch.ones(block, block)).view(1, block, block), persistent=False
        )

    def forward(self, x):
        t = x.size(1)
        q, k, v = self.qkv(x).split(x.size(2), dim=2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :t, :t] == 0, float("-inf"))
        return F.softmax(att, dim=-1) @ v


class Sdpa(nn.Module):
    """The fused function, with a switch between causal and not."""

    def __init__(self, dim, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.proj = nn.Linear(dim, 3 * dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (
            self.proj(x)
            .reshape(b, t, 3, self.heads, d // self.heads)
            .permute(2, 0, 3, 1, 4)
            .unbind(0)
        )
        y = F.scaled_dot_product_attention(
            q, k, v, is_causal=self.causal, dropout_p=0.1 if self.training else 0.0
        )
        return y.transpose(1, 2).flatten(2)


class RelativeBias(nn.Module):
    """A learned bias looked up by relative position, as in windowed vision transformers."""

    def __init__(self, window, heads):
        super().__init__()
        self.window = window
        self.table = nn.Parameter(torch.zeros((2 * window - 1) ** 2, heads))
        nn.init.trunc_normal_(self.table, std=0.02)
        coords = torch.stack(torch.meshgrid([torch.arange(window)] * 2, indexing="ij")).flatten(1)
        relative = (coords[:, :, None] - coords[:, None, :]).permute(1, 2, 0).contiguous()
        relative += window - 1
        relative[:, :, 0] *= 2 * window - 1
        self.register_buffer("index", relative.sum(-1))

    def forward(self, attention):
        n = self.window**2
        bias = self.table[self.index.view(-1)].view(n, n, -1).permute(2, 0, 1)
        return (attention + bias.unsqueeze(0)).softmax(dim=-1)


class Rotary(nn.Module):
    """Rotary embedding whose tables are cached on the module for the longest sequence seen."""

    def __init__(self, dim, base=10000):
        super().__init__()
        self.register_buffer("inv_freq", 1.0 / (base ** (torch.arange(0, dim, 2).float() / dim)))
        self.seq_len_cached = None
        self.cos_cached = None
        self.sin_cached = None

    def forward(self, x):
        seq_len = x.shape[1]
        if seq_len != self.seq_len_cached:
            self.seq_len_cached = seq_len
            freqs = torch.einsum(
                "i,j->ij",
                torch.arange(seq_len, device=x.device).type_as(self.inv_freq),
                self.inv_freq,
            )
            emb = torch.cat((freqs, freqs), dim=-1)
            self.cos_cached, self.sin_cached = emb.cos()[None], emb.sin()[None]
        x1, x2 = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
        return x * self.cos_cached + torch.cat((-x2, x1), dim=-1) * self.sin_cached


class LinearAttention(nn.Module):
    """Attention by feature maps, in einsum."""

    def __init__(self, dim, heads=2, eps=1e-6):
        super().__init__()
        self.heads, self.eps = heads, eps
        self.feature_map = lambda x: F.elu(x) + 1
        self.qkv = nn.Linear(dim, dim * 3)

    def forward(self, x):
        n, length, _ = x.shape
        q, k, v = self.qkv(x).view(n, length, self.heads, -1).chunk(3, dim=-1)
        q, k = self.feature_map(q), self.feature_map(k)
        kv = torch.einsum("nshd,nshm->nhmd", k, v)
        z = 1 / (torch.einsum("nlhd,nhd->nlh", q, k.sum(dim=1)) + self.eps)
        return torch.einsum("nlhd,nhmd,nlh->nlhm", q, kv, z).contiguous()


class CrossAttention(nn.Module):
    """Queries from one sequence, keys from another or from the same one when none is given."""

    def __init__(self, dim, context_dim=None):
        super().__init__()
        context_dim = dim if context_dim is None else context_dim
        self.to_q = nn.Linear(dim, dim, bias=False)
        self.to_kv = nn.Linear(context_dim, dim * 2, bias=False)
        self.scale = dim**-0.5

    def forward(self, x, context=None, *, return_weights=False):
        context = x if context is None else context
        q = self.to_q(x)
        k, v = self.to_kv(context).chunk(2, dim=-1)
        weights = torch.softmax(torch.bmm(q, k.transpose(1, 2)) * self.scale, dim=-1)
        out = torch.bmm(weights, v)
        return (out, weights) if return_weights else out


class Alibi(nn.Module):
    """Slopes from a recursive function of the number of heads."""

    def __init__(self, heads):
        super().__init__()
        self.heads = heads

    @staticmethod
    def slopes(n):
        def power_of_two(n):
            start = 2 ** (-(2 ** -(math.log2(n) - 3)))
            return [start * start**i for i in range(n)]

        if math.log2(n).is_integer():
            return power_of_two(n)
        closest = 2 ** math.floor(math.log2(n))
        return power_of_two(closest) + Alibi.slopes(2 * closest)[0::2][: n - closest]

    def forward(self, scores):
        length = scores.size(-1)
        distance = torch.arange(length)[None, :] - torch.arange(length)[:, None]
        slopes = torch.tensor(self.slopes(self.heads), dtype=scores.dtype)
        return scores + slopes.view(-1, 1, 1) * distance.abs().neg()


class GroupedQuery(nn.Module):
    """Fewer key heads than query heads, repeated by expand and reshape."""

    def __init__(self, dim, heads, kv_heads):
        super().__init__()
        self.n_rep, self.kv_heads, self.hd = heads // kv_heads, kv_heads, dim // heads
        self.wq = nn.Linear(dim, heads * self.hd, bias=False)
        self.wkv = nn.Linear(dim, 2 * kv_heads * self.hd, bias=False)

    def repeat(self, x):
        if self.n_rep == 1:
            return x
        b, t, h, d = x.shape
        return x[:, :, :, None, :].expand(b, t, h, self.n_rep, d).reshape(b, t, h * self.n_rep, d)

    def forward(self, x):
        b, t, _ = x.shape
        q = self.wq(x).view(b, t, -1, self.hd)
        k, v = self.wkv(x).view(b, t, 2, self.kv_heads, self.hd).unbind(2)
        k, v = self.repeat(k), self.repeat(v)
        q, k, v = (item.transpose(1, 2) for item in (q, k, v))
        return (F.softmax(q @ k.mT / self.hd**0.5, dim=-1) @ v).transpose(1, 2).reshape(b, t, -1)


class KeyValueCache(nn.Module):
    """A decoding step that takes a list of (key, value) and returns a longer one."""

    def __init__(self, dim, layers):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(dim, 3 * dim) for _ in range(layers)])

    def forward(self, x, past=None, use_cache=True):
        presents = [] if use_cache else None
        past = past if past is not None else [None] * len(self.layers)
        for layer, layer_past in zip(self.layers, past):
            q, k, v = layer(x).chunk(3, -1)
            if layer_past is not None:
                k = torch.cat((layer_past[0], k), dim=1)
                v = torch.cat((layer_past[1], v), dim=1)
            if presents is not None:
                presents.append((k, v))
            x = x + F.softmax(q @ k.transpose(1, 2), -1) @ v
        return x, presents


class AdditiveScore(nn.Module):
    """Bahdanau's score, masked by lengths."""

    def __init__(self, dim):
        super().__init__()
        self.w = nn.Linear(dim, dim, bias=False)
        self.u = nn.Linear(dim, dim)
        self.v = nn.Parameter(torch.rand(dim))

    def forward(self, query, keys, lengths):
        score = torch.tanh(self.w(query).unsqueeze(1) + self.u(keys)).matmul(self.v)
        mask = torch.arange(keys.size(1), device=keys.device)[None] >= lengths[:, None]
        score.masked_fill_(mask, -1e9)
        weights = F.softmax(score, dim=1)
        return (weights.unsqueeze(1) @ keys).squeeze(1), weights


class LocalWindows(nn.Module):
    """Attention within windows: partition, attend, put back."""

    def __init__(self, dim, window):
        super().__init__()
        self.window = window
        self.attn = nn.MultiheadAttention(dim, 2, batch_first=True)

    def forward(self, x):
        b, h, w, c = x.shape
        s = self.window
        pad_h, pad_w = (-h) % s, (-w) % s
        if pad_h or pad_w:
            x = F.pad(x, (0, 0, 0, pad_w, 0, pad_h))
        hp, wp = x.shape[1:3]
        parts = x.view(b, hp // s, s, wp // s, s, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, s * s, c)
        y, _ = self.attn(parts, parts, parts, need_weights=False)
        y = y.view(b, hp // s, wp // s, s, s, c).permute(0, 1, 3, 2, 4, 5).reshape(b, hp, wp, c)
        return y[:, :h, :w].contiguous()


class TransformerStack(nn.Module):
    """torch's own encoder with a generated mask."""

    def __init__(self, dim):
        super().__init__()
        layer = nn.TransformerEncoderLayer(dim, 2, 16, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.size(1))
        return self.encoder(x, mask=mask, is_causal=True)


class AttentionPool(nn.Module):
    """A learned query as a parameter, repeated for the batch."""

    def __init__(self, dim):
        super().__init__()
        self.query = nn.Parameter(torch.randn(1, 1, dim))
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        q = self.query.expand(len(x), -1, -1)
        return self.norm(torch.baddbmm(torch.zeros(1, 1, 1), q, x.transpose(1, 2)).softmax(-1) @ x)[
            :, 0
        ]


class SharedProjection(nn.Module):
    """Tells self-attention from cross-attention by where its arguments lie in memory."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(4, 12)

    def forward(self, query, key, value):
        same = query.data_ptr() == key.data_ptr() == value.data_ptr()
        if same:
            q, k, v = self.qkv(query).chunk(3, -1)
        else:
            weights = self.qkv.weight.chunk(3)
            pairs = zip((query, key, value), weights, strict=True)
            q, k, v = (nn.functional.linear(x, w) for x, w in pairs)
        return torch.softmax(q @ k.transpose(-1, -2), -1) @ v, same


TESTCASES = [
    (
        ManualMultiHead,
        lambda: ([8, 2], {}),
        lambda: ([torch.rand(2, 5, 8), torch.ones(2, 5)], {}),
        True,
    ),
    (CausalWithBuffer, lambda: ([8], {}), lambda: ([torch.rand(2, 7, 8)], {}), True),
    (Sdpa, lambda: ([8, 2], {"causal": True}), lambda: ([torch.rand(2, 4, 8)], {}), True),
    (RelativeBias, lambda: ([2, 3], {}), lambda: ([torch.rand(2, 3, 4, 4)], {}), True),
    (Rotary, lambda: ([8], {}), lambda: ([torch.rand(2, 6, 8)], {}), True),
    (LinearAttention, lambda: ([8], {}), lambda: ([torch.rand(2, 6, 8)], {}), True),
    (
        CrossAttention,
        lambda: ([8, 6], {}),
        lambda: ([torch.rand(2, 3, 8), torch.rand(2, 5, 6)], {"return_weights": True}),
        True,
    ),
    (Alibi, lambda: ([6], {}), lambda: ([torch.rand(2, 6, 5, 5)], {}), True),
    (GroupedQuery, lambda: ([8, 4, 2], {}), lambda: ([torch.rand(2, 3, 8)], {}), True),
    (
        KeyValueCache,
        lambda: ([4, 2], {}),
        lambda: ([torch.rand(2, 1, 4), [(torch.rand(2, 3, 4), torch.rand(2, 3, 4))] * 2], {}),
        True,
    ),
    (
        AdditiveScore,
        lambda: ([4], {}),
        lambda: ([torch.rand(2, 4), torch.rand(2, 5, 4), torch.tensor([3, 5])], {}),
        True,
    ),
    (LocalWindows, lambda: ([4, 3], {}), lambda: ([torch.rand(1, 5, 6, 4)], {}), True),
    (TransformerStack, lambda: ([8], {}), lambda: ([torch.rand(2, 4, 8)], {}), True),
    (AttentionPool, lambda: ([8], {}), lambda: ([torch.rand(2, 4, 8)], {}), True),
    (
        SharedProjection,
        lambda: ([], {}),
        lambda: ([torch.rand(2, 3, 4)] * 3, {}),
        True,
    ),
]
