"""One run at a time, as people write it: the other side of `stack_vs_loop.py`.

Eight algorithms, and WRI with the weights that we recommend, on `nn.Module` and `torch.optim.Adam`
with an `update(x, y)` on `[E, B, D]`, and two ways to feed them:

    usual   a process for the run, a `DataLoader` for each environment, evaluation through loaders
    lean    in process, rows by index tensors, evaluation on whole tensors

A test holds that both do the work of the stack, number for number. As a program this file is one
run of the usual way; it needs torch and NumPy only.
"""

import json
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

ENVIRONMENTS, ROWS, WIDTH, CLASSES = 4, 2000, 64, 7
EVALUATE_EVERY = 10
LOADER_BATCH = 64  # of the usual way's evaluation


def make_data() -> dict:
    """Three training environments and a test one, as arrays and row numbers."""
    random = np.random.default_rng(0)
    x = random.normal(size=(ENVIRONMENTS * ROWS, WIDTH)).astype(np.float32)
    directions = random.normal(size=(WIDTH, CLASSES))
    y = (x @ directions + 4 * random.normal(size=(len(x), CLASSES))).argmax(1)
    train, evaluate = [], {}
    for e in range(ENVIRONMENTS):
        rows = e * ROWS + random.permutation(ROWS)
        out, kept = rows[: ROWS // 5], rows[ROWS // 5 :]
        evaluate |= {f"env{e}_in": kept, f"env{e}_out": out}
        if e < ENVIRONMENTS - 1:
            train.append(kept)
    return {"x": x, "y": y, "train": train, "evaluate": evaluate, "classes": CLASSES}


def as_tensors(data: dict) -> dict:
    return data | {
        "x": torch.from_numpy(data["x"]),
        "y": torch.from_numpy(data["y"]),
        "train": [torch.from_numpy(rows) for rows in data["train"]],
        "evaluate": {k: torch.from_numpy(rows) for k, rows in data["evaluate"].items()},
    }


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
            fused=True,
        )

    def order(self, n: int) -> Tensor:
        return torch.randperm(n)

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
    emphasis: Tensor | None = None

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        risks = self.losses(x, y).mean(1)
        emphasis = torch.ones_like(risks) if self.emphasis is None else self.emphasis
        emphasis = emphasis * (self.hyper["eta"] * risks.detach()).exp()
        self.emphasis = emphasis / emphasis.sum()
        return risks @ self.emphasis


class Mixup(ERM):
    def shares(self, n: int) -> Tensor:
        return torch.from_numpy(np.random.beta(self.hyper["alpha"], self.hyper["alpha"], n))  # noqa: NPY002

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        order = self.order(len(x))
        partner = torch.empty_like(order)
        partner[order] = order.roll(-1)
        share = self.shares(len(x)).to(x.dtype)[:, None]
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
        means = mean.var(0).mean()  # half the mean squared difference over pairs
        return risk + 2 * self.hyper["penalty_weight"] * (means + covariance.var(0).mean())


class MLDG(ERM):
    def update(self, x: Tensor, y: Tensor) -> None:
        environments, hyper = len(x), self.hyper
        order = self.order(environments).tolist()
        n_test = min(int(hyper["meta_test"]), environments - 1)
        train, test = order[:-n_test], order[-n_test:]
        parameters = dict(self.network.named_parameters())
        totals = [torch.zeros_like(p) for p in parameters.values()]
        for k, i in enumerate(train):
            j = test[k % n_test]
            risk = F.cross_entropy(self.network(x[i]), y[i])
            gradients = torch.autograd.grad(risk, list(parameters.values()))
            moved = {}
            for (name, p), gradient in zip(parameters.items(), gradients, strict=True):
                decayed = gradient + hyper["weight_decay"] * p.detach()
                step = decayed / (decayed.abs() + 1e-8)  # Adam's first
                moved[name] = (p.detach() - hyper["learning_rate"] * step).requires_grad_()
            tested = F.cross_entropy(functional_call(self.network, moved, (x[j],)), y[j])
            after = torch.autograd.grad(tested, list(moved.values()))
            for total, gradient, late in zip(totals, gradients, after, strict=True):
                total.add_(gradient).add_(late, alpha=hyper["beta"])
        for p, total in zip(parameters.values(), totals, strict=True):
            p.grad = total / environments
        self.optimizer.step()
        self.step += 1


class Densities(nn.Module):
    """A bounded density network for each environment, all in one product."""

    def __init__(self, environments: int, width: int, low: float, high: float) -> None:
        super().__init__()
        half = width // 2

        def uniform(*shape: int, inputs: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(shape).uniform_(-(inputs**-0.5), inputs**-0.5))

        self.first = uniform(environments, half, width, inputs=width)
        self.first_bias = uniform(environments, half, 1, inputs=width)
        self.second = uniform(environments, 1, half, inputs=half)
        self.second_bias = uniform(environments, 1, 1, inputs=half)
        self.low, self.high = np.log(low), np.log(high)

    def forward(self, x: Tensor) -> Tensor:  # [E, B, D] -> log densities [E, E, B]
        columns = x.flatten(0, 1).T.expand(len(self.first), -1, -1)
        hidden = torch.baddbmm(self.first_bias, self.first, columns).relu_()
        outputs = torch.baddbmm(self.second_bias, self.second, hidden)[:, 0]
        return (self.low + outputs.sigmoid() * (self.high - self.low)).view(-1, *x.shape[:2])


class WRI(ERM):
    def __init__(self, width: int, classes: int, hyper: dict[str, float]) -> None:
        super().__init__(width, classes, hyper)
        self.draw = None  # the feeding side sets it: a density batch
        self.fitted = False
        bounds = hyper["min_density"], hyper["max_density"]
        self.densities = Densities(ENVIRONMENTS - 1, width, *bounds)
        self.density_optimizer = torch.optim.Adam(
            self.densities.parameters(),
            lr=hyper["density_learning_rate"],
            weight_decay=hyper["density_weight_decay"],
            fused=True,
        )

    @staticmethod
    def gaps(losses: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        risks = (weights * losses).mean(-1)
        mean_weight, mean_loss = weights.mean(-1), losses.mean(-1)
        both_weights = (mean_weight + mean_weight.T) / 2
        both_losses = (mean_loss + mean_loss[:, None]) / 2
        return risks - risks.T, both_weights, both_losses

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        losses = self.losses(x, y)
        if not self.fitted:
            return losses.mean()
        with torch.no_grad():
            weights = self.densities(x).exp()
        gap, _, mean_loss = self.gaps(losses, weights)
        pairs = len(x) * (len(x) - 1)
        penalty = (gap / mean_loss).square().sum() / pairs
        return losses.mean() + self.hyper["penalty_weight"] * penalty

    def update(self, x: Tensor, y: Tensor) -> None:
        since = self.step - self.hyper["anneal_steps"]
        super().update(x, y)
        if since < 0 or since % self.hyper["density_every"]:
            return
        self.fitted = True
        for _ in range(int(self.hyper["density_steps"])):
            self.density_step(*self.draw())

    def density_step(self, x: Tensor, y: Tensor) -> None:
        with torch.no_grad():
            losses = self.losses(x, y)
        logs = self.densities(x)
        gap, mean_weight, mean_loss = self.gaps(losses, logs.exp())
        pairs = len(x) * (len(x) - 1)
        penalty = (gap / (mean_weight * mean_loss)).square().sum() / pairs
        own = logs.diagonal(dim1=0, dim2=1).mean()
        loss = self.hyper["density_penalty_weight"] * penalty
        self.density_optimizer.zero_grad()
        (loss - self.hyper["density_log_weight"] * own).backward()
        nn.utils.clip_grad_norm_(self.densities.parameters(), 10.0)
        self.density_optimizer.step()


def fit(network: nn.Module, rows: list[tuple[Tensor, ...]], loss, steps: int, size: int, lr: float):
    """Adam on balanced batches, its rate along half a cosine."""
    optimizer = torch.optim.Adam(network.parameters(), lr=lr, weight_decay=1e-4, fused=True)
    for step in range(steps):
        drawn = [torch.randint(len(own[0]), (size,)) for own in rows]
        batches = [[part[which] for part in own] for own, which in zip(rows, drawn, strict=True)]
        parts = [torch.stack(part) for part in zip(*batches, strict=True)]
        for group in optimizer.param_groups:
            group["lr"] = lr * (1 + np.cos(np.pi * step / steps)) / 2
        optimizer.zero_grad()
        loss(*parts).backward()
        optimizer.step()


class LabelAware(nn.Module):
    """Environments told apart by the part of their shift that does not depend on the label."""

    def __init__(self, environments: int, width: int, classes: int) -> None:
        super().__init__()
        self.shape = classes, environments
        self.every = nn.Sequential(
            nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(),
            nn.Linear(32, classes * environments),
        )  # fmt: skip
        self.small = nn.Sequential(
            nn.Linear(environments - 1, 16), nn.ReLU(), nn.Linear(16, environments)
        )

    def fit(self, x: Tensor, y: Tensor) -> None:  # [E, n, D], [E, n]
        def tell(logits: Tensor) -> Tensor:  # [E, B, E]
            return -logits.log_softmax(-1).diagonal(dim1=0, dim2=-1).mean()

        def tell_by_label(x: Tensor, y: Tensor) -> Tensor:
            every = self.every(x).unflatten(-1, self.shape)
            place = y[..., None, None].expand(*y.shape, 1, self.shape[1])
            return tell(every.gather(-2, place).squeeze(-2))

        fit(self.every, [*zip(x, y, strict=True)], tell_by_label, 1000, 512, 3e-3)
        with torch.no_grad():
            means = self.mean(x)
        fit(self.small, [(own,) for own in means], lambda a: tell(self.small(a)), 600, 1024, 1e-2)

    def mean(self, x: Tensor) -> Tensor:  # [..., D] -> [..., E - 1]
        logits = self.every(x).unflatten(-1, self.shape).mean(-2)
        return (logits - logits.mean(-1, keepdim=True))[..., :-1]

    def forward(self, x: Tensor) -> Tensor:  # [E, B, D] -> log densities [E, E, B]
        return self.small(self.mean(x)).log_softmax(-1).movedim(-1, 0)


class Recommended(ERM):
    """WRI with weights from a classifier that is fitted once, before the first step."""

    densities = None  # made when the whole environments are given
    steps = 1

    def prepare(self, x: Tensor, y: Tensor, steps: int) -> None:  # [E, n, D], [E, n]
        self.steps = steps
        self.densities = LabelAware(len(x), x.shape[-1], self.network[-1].out_features)
        self.densities.fit(x, y)

    def update(self, x: Tensor, y: Tensor) -> None:
        if self.step and self.step == self.hyper["anneal_steps"]:
            self.reset()
        final = self.hyper["final_rate"]
        left = final + (1 - final) * (1 + np.cos(np.pi * self.step / self.steps)) / 2
        for group in self.optimizer.param_groups:
            group["lr"] = self.hyper["learning_rate"] * left
        self.optimizer.zero_grad()
        self.loss(x, y).backward()
        self.optimizer.step()
        self.step += 1

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        losses = self.losses(x, y)
        since = self.step - self.hyper["anneal_steps"]
        grown = min(1.0, (since + 1) / max(1.0, self.hyper["ramp_steps"]))
        weight = self.hyper["penalty_weight"] * grown if since >= 0 else 0.0
        if weight == 0:
            return losses.mean()
        with torch.no_grad():
            logs = self.densities(x)  # [j, i, B]
            own = logs.diagonal(dim1=0, dim2=1).T
            overlap = (logs - own).sigmoid()
        first, second = (self.gap(losses[:, k::2], overlap[..., k::2]) for k in (0, 1))
        penalty = (first * second).sum() / (len(x) * (len(x) - 1))
        return (losses.mean() + weight * penalty) / max(1.0, weight)

    @staticmethod
    def gap(losses: Tensor, weights: Tensor) -> Tensor:  # [E, E]
        risks = (weights * losses).mean(-1) / weights.mean(-1)
        return (risks - risks.T) / ((risks + risks.T) / 2)


ALGORITHMS = {
    "erm": ERM,
    "irm": IRM,
    "vrex": VREx,
    "groupdro": GroupDRO,
    "mixup": Mixup,
    "mldg": MLDG,
    "coral": CORAL,
    "wri": WRI,
    "wri recommended": Recommended,
}


def usual(name: str, hyper: dict[str, float], data: dict, steps: int) -> float:
    """The usual way; the last accuracy of the test environment."""
    torch.manual_seed(0)
    x, y = data["x"], data["y"]
    algorithm = ALGORITHMS[name](x.shape[1], data["classes"], hyper)

    def loaders(size: int, batches: int):
        iterators = []
        for rows in data["train"]:
            dataset, size = TensorDataset(x[rows], y[rows]), min(size, len(rows))
            sampler = RandomSampler(dataset, replacement=True, num_samples=batches * size)
            iterators.append(DataLoader(dataset, batch_size=size, sampler=sampler))
        return zip(*iterators, strict=True)

    def stacked(batch):
        return torch.stack([b[0] for b in batch]), torch.stack([b[1] for b in batch])

    train = loaders(int(hyper["batch_size"]), steps)
    if name == "wri recommended":
        whole = torch.stack([torch.as_tensor(rows) for rows in data["train"]])
        algorithm.prepare(x[whole], y[whole], steps)
    if name == "wri":
        density = loaders(int(hyper["density_batch_size"]), steps * int(hyper["density_steps"]))
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

    if name == "wri recommended":
        algorithm.prepare(x[train], y[train], steps)
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


if __name__ == "__main__":
    usual(sys.argv[1], json.loads(sys.argv[2]), as_tensors(make_data()), int(sys.argv[3]))
