"""Programs: losses and samplers."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Categorical, Normal, kl_divergence


class DiceLoss(nn.Module):
    def __init__(self, smooth=1.0, weights=None):
        super().__init__()
        self.smooth = smooth
        self.weights = weights

    def one(self, score, target):
        target = target.float()
        intersection = torch.sum(score * target)
        return 1 - (2 * intersection + self.smooth) / (
            torch.sum(score * score) + torch.sum(target * target) + self.smooth
        )

    def forward(self, logits, target):
        probs = torch.softmax(logits, dim=1)
        hot = torch.cat(
            [(target == i * torch.ones_like(target)).unsqueeze(1) for i in range(logits.size(1))],
            dim=1,
        )
        weights = self.weights if self.weights is not None else [1] * logits.size(1)
        return sum(
            self.one(probs[:, i], hot[:, i]) * weights[i] for i in range(logits.size(1))
        ) / logits.size(1)


class FocalLoss(nn.Module):
    def __init__(self, gamma=2, alpha=None, size_average=True):
        super().__init__()
        self.gamma, self.size_average = gamma, size_average
        self.alpha = torch.Tensor([alpha, 1 - alpha]) if isinstance(alpha, float) else alpha

    def forward(self, logits, target):
        logpt = F.log_softmax(logits, dim=-1).gather(1, target.view(-1, 1)).view(-1)
        pt = logpt.data.exp()
        if self.alpha is not None:
            if self.alpha.type() != logits.data.type():
                self.alpha = self.alpha.type_as(logits.data)
            logpt = logpt * self.alpha.gather(0, target.data.view(-1))
        loss = -1 * (1 - pt) ** self.gamma * logpt
        return loss.mean() if self.size_average else loss.sum()


class BatchHardTriplet(nn.Module):
    def __init__(self, margin):
        super().__init__()
        self.ranking = nn.MarginRankingLoss(margin=margin)

    def forward(self, x, labels):
        n = x.size(0)
        dist = torch.pow(x, 2).sum(1, keepdim=True).expand(n, n)
        dist = dist + dist.t()
        dist = torch.addmm(dist, x, x.t(), beta=1, alpha=-2).clamp(min=1e-12).sqrt()
        mask = labels.expand(n, n).eq(labels.expand(n, n).t())
        hardest_pos = torch.max(dist.masked_fill(~mask, 0), 1).values
        hardest_neg = torch.min(dist.masked_fill(mask, 1e6), 1).values
        return self.ranking(hardest_neg, hardest_pos, torch.ones_like(hardest_neg))


class LoopTriplet(nn.Module):
    """The same with a Python loop that indexes with boolean masks."""

    def forward(self, x, labels):
        dist = torch.cdist(x, x)
        mask = labels[None] == labels[:, None]
        dist_ap, dist_an = [], []
        for i in range(x.size(0)):
            dist_ap.append(dist[i][mask[i]].max().unsqueeze(0))
            dist_an.append(dist[i][mask[i] == 0].min().unsqueeze(0))
        return F.relu(torch.cat(dist_ap) - torch.cat(dist_an) + 0.3).mean()


class Contrastive(nn.Module):
    def __init__(self, temperature):
        super().__init__()
        self.temperature = temperature

    def forward(self, a, b):
        z = F.normalize(torch.cat([a, b]), dim=1)
        n = a.size(0)
        sim = z @ z.t() / self.temperature
        sim.masked_fill_(torch.eye(2 * n, dtype=torch.bool), -9e15)
        positive = sim[range(2 * n), [(i + n) % (2 * n) for i in range(2 * n)]]
        return (torch.logsumexp(sim, dim=-1) - positive).mean()


class Variational(nn.Module):
    """Reparametrisation, with noise while training, and the divergence in closed form."""

    def __init__(self, dim, latent, sample=True):
        super().__init__()
        self.enc, self.dec = nn.Linear(dim, 2 * latent), nn.Linear(latent, dim)
        self.sample = sample

    def forward(self, x):
        mu, logvar = self.enc(x).chunk(2, -1)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar) if self.sample else mu
        kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp(), dim=-1)
        return torch.sigmoid(self.dec(z)), kld.mean()


class DistributionObjects(nn.Module):
    """Distributions from the library; one of them is the result."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        mean, scale = self.fc(x).chunk(2, -1)
        posterior = Normal(mean, F.softplus(scale) + 1e-3)
        prior = Normal(torch.zeros_like(mean), torch.ones_like(mean))
        return posterior, kl_divergence(posterior, prior).sum(-1), posterior.rsample()


class PolicySample(nn.Module):
    """Samples an action and returns its logarithm, as policy gradients do."""

    def __init__(self):
        super().__init__()
        self.pi = nn.Linear(4, 3)

    def forward(self, x):
        dist = Categorical(logits=self.pi(x))
        action = dist.sample()
        return action, dist.log_prob(action), dist.entropy()


class GumbelSelect(nn.Module):
    def __init__(self, tau, hard):
        super().__init__()
        self.tau, self.hard = tau, hard
        self.codebook = nn.Parameter(torch.rand(3, 2))

    def forward(self, logits):
        weights = F.gumbel_softmax(logits, tau=self.tau, hard=self.hard, dim=-1)
        return weights @ self.codebook


class LabelSmoothing(nn.Module):
    def __init__(self, classes, smoothing=0.1, dim=-1):
        super().__init__()
        self.confidence = 1.0 - smoothing
        self.smoothing, self.cls, self.dim = smoothing, classes, dim

    def forward(self, pred, target):
        pred = pred.log_softmax(dim=self.dim)
        with torch.no_grad():
            true = torch.zeros_like(pred)
            true.fill_(self.smoothing / (self.cls - 1))
            true.scatter_(1, target.data.unsqueeze(1), self.confidence)
        return torch.mean(torch.sum(-true * pred, dim=self.dim))


class Ssim(nn.Module):
    """Builds its window when the number of channels changes."""

    def __init__(self, window=3):
        super().__init__()
        self.window_size, self.channel = window, 1
        self.window = self.make(1)

    def make(self, channel):
        g = torch.Tensor(
            [2.718 ** (-((x - self.window_size // 2) ** 2) / 4.5) for x in range(self.window_size)]
        )
        g = (g / g.sum()).unsqueeze(1)
        return (
            g.mm(g.t())[None, None]
            .expand(channel, 1, self.window_size, self.window_size)
            .contiguous()
        )

    def forward(self, a, b):
        channel = a.size(1)
        if channel == self.channel and self.window.data.type() == a.data.type():
            window = self.window
        else:
            window = self.make(channel).type_as(a)
            self.window, self.channel = window, channel
        blur = lambda t: F.conv2d(t, window, padding=self.window_size // 2, groups=channel)  # noqa: E731
        mu1, mu2 = blur(a), blur(b)
        s1, s2, s12 = blur(a * a) - mu1**2, blur(b * b) - mu2**2, blur(a * b) - mu1 * mu2
        return (
            ((2 * mu1 * mu2 + 1e-4) * (2 * s12 + 9e-4))
            / ((mu1**2 + mu2**2 + 1e-4) * (s1 + s2 + 9e-4))
        ).mean()


class TotalVariation(nn.Module):
    def count(self, t):
        return t.size()[1] * t.size()[2] * t.size()[3]

    def forward(self, x):
        b, _, h, w = x.size()
        tv_h = torch.pow(x[:, :, 1:, :] - x[:, :, : h - 1, :], 2).sum()
        tv_w = torch.pow(x[:, :, :, 1:] - x[:, :, :, : w - 1], 2).sum()
        return 2 * (tv_h / self.count(x[:, :, 1:, :]) + tv_w / self.count(x[:, :, :, 1:])) / b


class GradientPenalty(nn.Module):
    """Differentiates inside forward."""

    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))

    def forward(self, x):
        x = x.detach().requires_grad_(True)
        out = self.critic(x)
        (grad,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        return ((grad.norm(2, dim=1) - 1) ** 2).mean()


class MultiLoss(nn.Module):
    """Weights a dictionary of losses by learned uncertainties and reports floats."""

    def __init__(self, names):
        super().__init__()
        self.log_vars = nn.ParameterDict({name: nn.Parameter(torch.zeros(())) for name in names})

    def forward(self, losses):
        total = 0.0
        for name, loss in losses.items():
            precision = torch.exp(-self.log_vars[name])
            total = total + precision * loss + self.log_vars[name]
        return total, sorted(losses)


class MixupCriterion(nn.Module):
    """Mixes the batch with a permutation of itself."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.criterion = nn.CrossEntropyLoss(reduction="none")

    def forward(self, x, y):
        lam = torch.distributions.Beta(torch.tensor(0.4), torch.tensor(0.4)).sample()
        index = torch.randperm(x.size(0))
        out = self.fc(lam * x + (1 - lam) * x[index])
        return (lam * self.criterion(out, y) + (1 - lam) * self.criterion(out, y[index])).mean()


TESTCASES = [
    (
        DiceLoss,
        lambda: ([], {}),
        lambda: ([torch.rand(2, 3, 4, 4), torch.randint(0, 3, (2, 4, 4))], {}),
        True,
    ),
    (
        FocalLoss,
        lambda: ([], {"alpha": 0.25}),
        lambda: ([torch.rand(4, 2), torch.tensor([0, 1, 1, 0])], {}),
        True,
    ),
    (
        BatchHardTriplet,
        lambda: ([0.3], {}),
        lambda: ([torch.rand(4, 3), torch.tensor([0, 0, 1, 1])], {}),
        True,
    ),
    (
        LoopTriplet,
        lambda: ([], {}),
        lambda: ([torch.rand(4, 3), torch.tensor([0, 0, 1, 1])], {}),
        True,
    ),
    (Contrastive, lambda: ([0.5], {}), lambda: ([torch.rand(3, 4), torch.rand(3, 4)], {}), True),
    (Variational, lambda: ([4, 2], {}), lambda: ([torch.rand(3, 4)], {}), True),
    (DistributionObjects, lambda: ([], {}), lambda: ([torch.rand(3, 4)], {}), True),
    (PolicySample, lambda: ([], {}), lambda: ([torch.rand(3, 4)], {}), True),
    (GumbelSelect, lambda: ([0.7, True], {}), lambda: ([torch.rand(2, 3)], {}), True),
    (
        LabelSmoothing,
        lambda: ([3], {}),
        lambda: ([torch.rand(4, 3), torch.tensor([0, 1, 2, 1])], {}),
        True,
    ),
    (Ssim, lambda: ([], {}), lambda: ([torch.rand(1, 2, 5, 5), torch.rand(1, 2, 5, 5)], {}), True),
    (TotalVariation, lambda: ([], {}), lambda: ([torch.rand(2, 1, 4, 4)], {}), True),
    (GradientPenalty, lambda: ([], {}), lambda: ([torch.rand(3, 4)], {}), True),
    (
        MultiLoss,
        lambda: ([["a", "b"]], {}),
        lambda: ([{"b": torch.rand(()), "a": torch.rand(())}], {}),
        True,
    ),
    (
        MixupCriterion,
        lambda: ([], {}),
        lambda: ([torch.rand(4, 4), torch.tensor([0, 1, 2, 1])], {}),
        True,
    ),
]
