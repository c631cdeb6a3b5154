"""A classifier of environments that sees the label, for weights on the invariant features alone.

Where p_e(x, y) = p_e(x_inv) · p(y | x_inv) · p_e(x_spu | y), as in the paper's graph,

    log p_i(x, y) / p_j(x, y) = a(x_inv) + b(x_spu, y),    a = log p_i(x_inv) / p_j(x_inv)

The part that does not depend on y is the shift of the invariant features, up to the mean of b over
y. That mean is constant where the spurious shift is odd in the label: a colour that flips, a shift
of means on both sides of zero. Where it is not, Σ_y b(x_spu, y) / C stays in the weights. So

    1.  classify environments on (x, y), one output h_y(x)_e per class y and environment e
    2.  A(x) = mean over y of h_y(x), and centred over the environments
    3.  log d_e(x) = log softmax(net(A(x)))_e,  net a small network fitted to tell environments by A

The third step makes p(e | A) right again: A itself is no log-odds of anything that was observed.
A classifier on x alone learns Σ_y as well, and with it the spurious features. A target that is a
number is cut into bins of equally many rows. Classes that some environment lacks say nothing about
the shift, and do not count in the mean; if no class is left, weights are made from x alone.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from wri.densities.base import Density, HyperValues
from wri.densities.classifier import ClassifierTraining
from wri.errors import check_option
from wri.stacked import Network, generator

Terms = Literal["plain", "squares", "products"]


@dataclass(frozen=True, kw_only=True)
class LabelAwareClassifier(Density):
    """Environments told apart by the part of their shift that does not depend on the label.

    Parameters
    ----------
    terms
        What the classifier sees of x: "plain", itself; "squares", also the square of every column;
        "products", also the product of every two.
    hidden, second_hidden
        Units of the classifier's hidden layers; 0 for none. Without any it is a logistic regression
        on these terms and their products with y.
    steps, batch_size, learning_rate, weight_decay
        Of its fitting; a batch has so many rows of each environment.
    bins
        Classes that a target is cut into if it is a number.
    refit_hidden, refit_steps, refit_batch_size, refit_learning_rate
        Of the small network on A; it has the same weight decay.
    """

    terms: Terms = "plain"
    hidden: int = 64
    second_hidden: int = 32
    steps: int = 1000
    batch_size: int = 512
    learning_rate: float = 3e-3
    weight_decay: float = 1e-4
    bins: int = 4
    refit_hidden: int = 16
    refit_steps: int = 600
    refit_batch_size: int = 1024
    refit_learning_rate: float = 1e-2
    learning: ClassVar[Literal["refit"]] = "refit"
    penalised: ClassVar[bool] = False
    comparable_over_x: ClassVar[bool] = False
    needs_targets: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_option("terms", self.terms, get_args(Terms))

    def _shared(self, environments: int, width: int, classes: int = 1) -> Network:
        """A's network; with classes, the one whose outputs A is the mean of."""
        squares = {"plain": 0, "squares": width, "products": width * (width + 1) // 2}
        hidden = [units for units in (self.hidden, self.second_hidden) if units]
        return Network((width + squares[self.terms], *hidden, classes * environments))

    def _small(self, environments: int) -> Network:
        return Network((environments - 1, self.refit_hidden, environments))

    def initial(self, seeds: Sequence[int], environments: int, width: int) -> np.ndarray:
        networks = self._shared(environments, width), self._small(environments)
        return np.concatenate([network.initial(seeds, "density") for network in networks], axis=1)

    def log_density(self, flat: Tensor, x: Tensor, environments: int, hyper: HyperValues) -> Tensor:
        shared, small = self._shared(environments, x.shape[-1]), self._small(environments)
        sizes = [shared.packing.size, small.packing.size]
        first, second = flat.split(sizes, dim=1)
        terms = _expand(x, self.terms)
        outputs = small.outputs(second, _centred(shared.outputs(first, terms)))  # [R, …, E]
        return outputs.movedim(-1, 1).log_softmax(1)

    def log_density_own(self, flat: Tensor, x: Tensor, hyper: HyperValues) -> Tensor:
        everywhere = self.log_density(flat, x, x.shape[1], hyper)  # [R, E density, E rows, …]
        return everywhere.diagonal(dim1=1, dim2=2).movedim(-1, 1)

    def fit_with_targets(
        self, environments: Sequence[np.ndarray], targets: Sequence[np.ndarray]
    ) -> np.ndarray:
        plain = [torch.as_tensor(own, dtype=torch.float32) for own in environments]
        rows = [_expand(own, self.terms) for own in plain]
        network = self._shared(len(plain), plain[0].shape[1])
        edges = _edges(targets, self.bins)
        labels = [_classes(own, edges) for own in targets]
        if not _common_classes(labels, 1 + max(int(own.max()) for own in labels)):
            warnings.warn(
                "no class occurs in every environment, so the label cannot tell which part of the "
                "shift is invariant; weights are made from x alone",
                stacklevel=2,
            )
            labels = [torch.zeros_like(own) for own in labels]
        shared = self._fit_shared(rows, labels, plain[0].shape[1])  # [1, P]
        with torch.no_grad():
            mean_logits = [_centred(network.outputs(shared, own[None]))[0] for own in rows]
        small = self._fit_small(mean_logits)
        return torch.cat([shared, small], dim=1)[0].double().numpy()

    def _fit_every(
        self, rows: Sequence[Tensor], labels: Sequence[Tensor], width: int
    ) -> tuple[Network, Tensor]:
        """Step 1: the network with an output per class and environment, and its `[1, P]`."""
        count = len(rows)
        classes = 1 + max(int(own.max()) for own in labels)
        network = self._shared(count, width, classes)

        def loss(flat: Tensor, parts: list[Tensor]) -> Tensor:  # [1]
            x, y = parts  # [E, B, D], [E, B]
            every = network.outputs(flat, x[None]).unflatten(-1, (classes, count))
            place = y[None, :, :, None, None].expand(-1, -1, -1, 1, count)
            return _cross_entropy(every.gather(-2, place).squeeze(-2))

        fitting = ClassifierTraining(
            self.steps, self.batch_size, self.learning_rate, self.weight_decay
        )
        start = network.initial([0], "density")
        pairs = list(zip(rows, labels, strict=True))
        return network, fitting.fit(start, pairs, loss, generator(0, "classifier"))

    def _fit_shared(
        self, rows: Sequence[Tensor], labels: Sequence[Tensor], width: int
    ) -> Tensor:  # [1, P]
        """What is kept of step 1: the mean over y of the last layer, which gives A."""
        count = len(rows)
        network, flat = self._fit_every(rows, labels, width)
        classes = network.widths[-1] // count
        common = _common_classes(labels, classes)
        *below, weight, bias = network.packing.views(flat)
        last = [
            part[:, 0].unflatten(1, (classes, count))[:, common].mean(1) for part in (weight, bias)
        ]  # [1, E, H], [1, E, 1]
        return torch.cat([part.flatten(1) for part in (*below, *last)], dim=1)

    def fit_label_part(
        self, environments: Sequence[np.ndarray], targets: Sequence[np.ndarray]
    ) -> "LabelPart":
        """The other part of the shift: b, which depends on the label.

        Parameters
        ----------
        environments, targets
            Rows `[n_e, D]` in units of about one, and what they are labelled with, `[n_e]`.
        """
        plain = [torch.as_tensor(own, dtype=torch.float32) for own in environments]
        rows = [_expand(own, self.terms) for own in plain]
        edges = _edges(targets, self.bins)
        labels = [_classes(own, edges) for own in targets]
        network, flat = self._fit_every(rows, labels, plain[0].shape[1])
        return LabelPart(
            network=network,
            flat=flat,
            environments=len(rows),
            terms=self.terms,
            common=_common_classes(labels, network.widths[-1] // len(rows)),
            edges=edges,
        )

    def _fit_small(self, mean_logits: Sequence[Tensor]) -> Tensor:  # [1, P]
        """Step 3, from A of every environment, `[n_e, E − 1]` each."""
        network = self._small(len(mean_logits))

        def loss(flat: Tensor, parts: list[Tensor]) -> Tensor:  # [1]
            return _cross_entropy(network.outputs(flat, parts[0][None]))

        fitting = ClassifierTraining(
            self.refit_steps, self.refit_batch_size, self.refit_learning_rate, self.weight_decay
        )
        rows = [(own,) for own in mean_logits]
        return fitting.fit(network.initial([0], "density"), rows, loss, generator(0, "refit"))


@dataclass(frozen=True, eq=False, kw_only=True)
class LabelPart:
    """b(x, y), fitted: how the environments differ in what goes with a label.

    It is zero on average over the labels at every x.
    """

    network: Network
    flat: Tensor  # [1, P]
    environments: int
    terms: Terms
    common: list[int]  # classes that every environment has
    edges: np.ndarray | None  # of the bins, where targets are numbers

    def __call__(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:  # [n, D], [n] -> [n, E − 1]
        """Log densities given the label, each against the mean over environments."""
        rows = _expand(torch.as_tensor(x, dtype=torch.float32), self.terms)
        with torch.no_grad():
            outputs = self.network.outputs(self.flat, rows[None])[0]
        every = outputs.unflatten(-1, (-1, self.environments))[:, self.common]  # [n, C, E]
        classes = _classes(y, self.edges)
        own = classes[:, None] == torch.tensor(self.common)  # [n, C]; others have no b
        deviation = every - every.mean(1, keepdim=True)
        return _centred((deviation * own[:, :, None]).sum(1)).double().numpy()


def _expand(x: Tensor, terms: Terms) -> Tensor:  # [..., D] -> [..., D + squares]
    """x, with squares or all products of its columns."""
    if terms == "plain":
        return x
    if terms == "squares":
        return torch.cat([x, x.square()], dim=-1)
    i, j = torch.triu_indices(x.shape[-1], x.shape[-1])
    return torch.cat([x, x[..., i] * x[..., j]], dim=-1)


def _centred(logits: Tensor) -> Tensor:  # [..., E] -> [..., E − 1]
    """Differences to the mean over environments; the last follows from the others."""
    return (logits - logits.mean(-1, keepdim=True))[..., :-1]


def _cross_entropy(logits: Tensor) -> Tensor:  # [1, E, B, E] -> [1]
    """Of telling whose rows they are."""
    own = logits.log_softmax(-1).diagonal(dim1=1, dim2=-1)  # [1, B, E]
    return -own.mean((1, 2))


def _edges(targets: Sequence[np.ndarray], bins: int) -> np.ndarray | None:
    """Between bins of numbers with about equally many rows; None for classes."""
    if all(own.dtype.kind in "iu" for own in targets):
        return None
    return np.quantile(np.concatenate(list(targets)), np.linspace(0, 1, bins + 1)[1:-1])


def _classes(targets: np.ndarray, edges: np.ndarray | None) -> Tensor:
    """Class numbers as they are, or the bins that other numbers fall into."""
    return torch.as_tensor(
        targets if edges is None else np.searchsorted(edges, targets), dtype=torch.long
    )


def _common_classes(labels: Sequence[Tensor], classes: int) -> list[int]:
    """Classes that every environment has."""
    return [c for c in range(classes) if all(bool((own == c).any()) for own in labels)]
