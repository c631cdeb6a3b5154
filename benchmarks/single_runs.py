"""One run at a time, as people write it: the other side of `stack_vs_loop.py`.

Eight algorithms on `nn.Module` and `torch.optim.Adam` with an `update(x, y)` on `[E, B, D]`, and
two ways to feed them:

    usual   a process for the run, a `DataLoader` for each environment, evaluation through loaders
    lean    in process, rows by index tensors, evaluation on whole tensors
"""

import copy

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

EVALUATE_EVERY = 10
LOADER_BATCH = 64  # of the usual way's evaluation


def predictor(width: int, classes: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(width, width // 2),
        nn.ReLU(),
        nn.Linear(width // 2, width // 4),
        nn.ReLU(),
        nn.Linear(width // 4, classes),
    )


class ERM:
    def __init__(self, width: int, classes: int, hyper: dict[str, float]) -> None:
        self.hyper = hyper
        self.network = predictor(width, classes)
        self.step = 0
        self.reset()

    def reset(self) -> None:
        self.optimizer = torch.optim.Adam(
            self.network.parameters(),
            lr=self.hyper["learning_rate"],
            weight_decay=self.hyper["weight_decay"],
        )

    def update(self, x: Tensor, y: Tensor) -> None:
        if self.step and self.step == self.hyper.get("anneal_steps"):
            self.reset()
        self.optimizer.zero_grad()
        self.loss(x, y).backward()
        self.optimizer.step()
        self.step += 1

    def weight(self, before: float) -> float:
        annealed = self.step >= self.hyper["anneal_steps"]
        return self.hyper["penalty_weight"] if annealed else before

    def losses(self, x: Tensor, y: Tensor) -> Tensor:  # [E, B]
        outputs = self.network(x.flatten(0, 1))
        return F.cross_entropy(outputs, y.flatten(), reduction="none").view(y.shape)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return self.losses(x, y).mean()


class VREx(ERM):
    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        risks = self.losses(x, y).mean(1)
        return risks.mean() + self.weight(1.0) * risks.var(unbiased=False)


class IRM(ERM):
    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        outputs = self.network(x.flatten(0, 1))
        risk = F.cross_entropy(outputs, y.flatten())
        expected = (outputs.softmax(1) * outputs).sum(1)
        slope = (expected - outputs.gather(1, y.flatten()[:, None])[:, 0]).view(y.shape)
        penalty = (slope[:, ::2].mean(1) * slope[:, 1::2].mean(1)).mean()
        return risk + self.weight(1.0) * penalty


class GroupDRO(ERM):
    shares: Tensor | None = None

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        risks = self.losses(x, y).mean(1)
        shares = torch.ones_like(risks) if self.shares is None else self.shares
        shares = shares * (self.hyper["eta"] * risks.detach()).exp()
        self.shares = shares / shares.sum()
        return risks @ self.shares


class Mixup(ERM):
    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        order = torch.randperm(len(x))
        partner = torch.empty_like(order)
        partner[order] = order.roll(-1)
        alpha = self.hyper["alpha"]
        share = torch.distributions.Beta(alpha, alpha).sample((len(x), 1))
        outputs = self.network(torch.lerp(x[partner], x, share[..., None]).flatten(0, 1))
        own = F.cross_entropy(outputs, y.flatten(), reduction="none").view(y.shape)
        other = F.cross_entropy(outputs, y[partner].flatten(), reduction="none").view(y.shape)
        return (share * own + (1 - share) * other).mean()


class CORAL(ERM):
    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        phi = self.network[:-1](x.flatten(0, 1))
        risk = F.cross_entropy(self.network[-1](phi), y.flatten())
        phi = phi.view(*y.shape, -1)
        mean = phi.mean(1, keepdim=True)
        centred = phi - mean
        covariance = centred.transpose(1, 2) @ centred / (y.shape[1] - 1)
        penalty, pairs = torch.zeros(()), 0
        for i in range(len(x)):
            for j in range(i + 1, len(x)):
                penalty = penalty + (mean[i] - mean[j]).square().mean()
                penalty = penalty + (covariance[i] - covariance[j]).square().mean()
                pairs += 1
        return risk + self.hyper["penalty_weight"] * penalty / pairs


class MLDG(ERM):
    def update(self, x: Tensor, y: Tensor) -> None:
        self.optimizer.zero_grad()
        environments = len(x)
        order = torch.randperm(environments).tolist()
        n_test = min(int(self.hyper["meta_test"]), environments - 1)
        train, test = order[:-n_test], order[-n_test:]
        parameters = list(self.network.parameters())
        totals = [torch.zeros_like(p) for p in parameters]
        for k, i in enumerate(train):
            j = test[k % n_test]
            inner = copy.deepcopy(self.network)
            optimizer = torch.optim.Adam(
                inner.parameters(),
                lr=self.hyper["learning_rate"],
                weight_decay=self.hyper["weight_decay"],
            )
            F.cross_entropy(inner(x[i]), y[i]).backward()
            gradients = [p.grad.clone() for p in inner.parameters()]
            optimizer.step()
            tested = torch.autograd.grad(F.cross_entropy(inner(x[j]), y[j]), inner.parameters())
            for total, g, t in zip(totals, gradients, tested, strict=True):
                total.add_(g).add_(t, alpha=self.hyper["beta"])
        for p, total in zip(parameters, totals, strict=True):
            p.grad = total / environments
        self.optimizer.step()


class WRI(ERM):
    def __init__(self, width: int, classes: int, hyper: dict[str, float]) -> None:
        super().__init__(width, classes, hyper)
        self.densities: nn.ModuleList | None = None
        self.width = width
        self.draw = None  # the feeding side sets it: a density batch
        self.low, self.high = np.log(hyper["min_density"]), np.log(hyper["max_density"])

    def start(self, environments: int) -> None:
        half = self.width // 2
        self.densities = nn.ModuleList(
            nn.Sequential(nn.Linear(self.width, half), nn.ReLU(), nn.Linear(half, 1))
            for _ in range(environments)
        )
        self.density_optimizer = torch.optim.Adam(
            self.densities.parameters(),
            lr=self.hyper["density_learning_rate"],
            weight_decay=self.hyper["density_weight_decay"],
        )

    def log_densities(self, x: Tensor) -> Tensor:  # [E, B, D] -> [E, E, B]
        rows = x.flatten(0, 1)
        outputs = torch.stack([density(rows)[:, 0] for density in self.densities])
        return (self.low + outputs.sigmoid() * (self.high - self.low)).view(-1, *x.shape[:2])

    @staticmethod
    def gaps(losses: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        risks = (weights * losses).mean(-1)
        mean_weight, mean_loss = weights.mean(-1), losses.mean(-1)
        both_weights = (mean_weight + mean_weight.T) / 2
        both_losses = (mean_loss + mean_loss[:, None]) / 2
        return risks - risks.T, both_weights, both_losses

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        losses = self.losses(x, y)
        if self.densities is None or self.step < self.hyper["anneal_steps"]:
            return losses.mean()
        with torch.no_grad():
            weights = self.log_densities(x).exp()
        gap, _, mean_loss = self.gaps(losses, weights)
        pairs = len(x) * (len(x) - 1)
        penalty = (gap / mean_loss).square().sum() / pairs
        return losses.mean() + self.hyper["penalty_weight"] * penalty

    def update(self, x: Tensor, y: Tensor) -> None:
        step = self.step
        super().update(x, y)
        if step < self.hyper["anneal_steps"] or step % self.hyper["density_every"]:
            return
        if self.densities is None:
            self.start(len(x))
        for _ in range(int(self.hyper["density_steps"])):
            self.density_step(*self.draw())

    def density_step(self, x: Tensor, y: Tensor) -> None:
        with torch.no_grad():
            losses = self.losses(x, y)
        logs = self.log_densities(x)
        gap, mean_weight, mean_loss = self.gaps(losses, logs.exp())
        pairs = len(x) * (len(x) - 1)
        penalty = (gap / (mean_weight * mean_loss)).square().sum() / pairs
        own = logs.diagonal(dim1=0, dim2=1).mean()
        loss = self.hyper["density_penalty_weight"] * penalty
        self.density_optimizer.zero_grad()
        (loss - self.hyper["density_log_weight"] * own).backward()
        nn.utils.clip_grad_norm_(self.densities.parameters(), 10.0)
        self.density_optimizer.step()


ALGORITHMS = {
    "erm": ERM,
    "irm": IRM,
    "vrex": VREx,
    "groupdro": GroupDRO,
    "mixup": Mixup,
    "mldg": MLDG,
    "coral": CORAL,
    "wri": WRI,
}


def endless(x: Tensor, y: Tensor, size: int):
    dataset = TensorDataset(x, y)
    size = min(size, len(x))
    while True:
        sampler = RandomSampler(dataset, replacement=True)
        yield from DataLoader(dataset, batch_size=size, sampler=sampler, drop_last=True)


def usual(name: str, hyper: dict[str, float], data: dict, steps: int) -> float:
    """The usual way; the last accuracy of the test environment."""
    torch.manual_seed(0)
    x, y = data["x"], data["y"]
    algorithm = ALGORITHMS[name](x.shape[1], data["classes"], hyper)

    def loaders(size: int):
        return zip(*(endless(x[rows], y[rows], size) for rows in data["train"]), strict=True)

    def stacked(batch):
        return torch.stack([b[0] for b in batch]), torch.stack([b[1] for b in batch])

    train = loaders(int(hyper["batch_size"]))
    if name == "wri":
        density = loaders(int(hyper["density_batch_size"]))
        algorithm.draw = lambda: stacked(next(density))
    evaluation = {
        split: DataLoader(TensorDataset(x[rows], y[rows]), batch_size=LOADER_BATCH)
        for split, rows in data["evaluate"].items()
    }
    accuracy = 0.0
    for step in range(steps):
        algorithm.update(*stacked(next(train)))
        if step % EVALUATE_EVERY == 0 or step == steps - 1:
            algorithm.network.eval()
            for loader in evaluation.values():
                correct = total = 0
                with torch.no_grad():
                    for inputs, targets in loader:
                        hit = algorithm.network(inputs).argmax(1) == targets
                        correct += hit.sum().item()
                        total += len(targets)
                accuracy = correct / total
            algorithm.network.train()
    return accuracy


def lean(name: str, hyper: dict[str, float], data: dict, steps: int) -> float:
    """The leanest single run; the last accuracy of the test environment."""
    torch.manual_seed(0)
    x, y = data["x"], data["y"]
    algorithm = ALGORITHMS[name](x.shape[1], data["classes"], hyper)
    train = torch.stack(data["train"])  # [E, n]

    def batch(size: int):
        size = min(size, train.shape[1])
        drawn = torch.randint(train.shape[1], (len(train), size))
        rows = train.gather(1, drawn)
        return x[rows], y[rows]

    if name == "wri":
        algorithm.draw = lambda: batch(int(hyper["density_batch_size"]))
    splits = list(data["evaluate"].values())
    accuracy = 0.0
    for step in range(steps):
        algorithm.update(*batch(int(hyper["batch_size"])))
        if step % EVALUATE_EVERY == 0 or step == steps - 1:
            with torch.no_grad():
                correct = (algorithm.network(x).argmax(1) == y).float()
            accuracy = [correct[rows].mean().item() for rows in splits][-1]
    return accuracy
