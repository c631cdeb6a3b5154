"""Classifier of environments that sees the label, for weights of the invariant features only.

If p_e(x, y) = p_e(x_inv) · p(y | x_inv) · p_e(x_spu | y), as in the paper's graph,

    log p_i(x, y) / p_j(x, y) = a(x_inv) + b(x_spu, y),    a = log p_i(x_inv) / p_j(x_inv)

The part that does not depend on y is the shift of the invariant features, up to the mean of b over
y. That mean is constant if the spurious shift is odd in the label: a colour that flips, a shift of
means on both sides of zero. Otherwise Σ_y b(x_spu, y) / C stays in the weights. So

    1.  classify environments on (x, y), one output h_y(x)_e per class y and environment e
    2.  A(x) = mean over y of h_y(x), centred over the environments
    3.  log d_e(x) = log softmax(net(A(x)))_e,  net a small network that classifies by A

The third step makes p(e | A) correct: A itself is not the log-odds of any observed event. A
classifier on x alone also learns Σ_y, and with it the spurious features. A numeric target is cut
into bins with equal numbers of rows. Classes that are missing in some environment hold no
information about the shift and do not enter the mean; if no class is left, weights use x alone.

Errors of A show some of x_spu, and a fit of p(e | A) makes them larger, because x_spu tells the
environments apart. With hidden layers and more than two environments, the small network is fitted
to rows with their labels instead, beside the fixed part that depends on the label:

    3.  log p(e | x, y) = net(A(x))_e + (h_y(x) − A(x))_e + const,   log d_e = net(A(x))_e + c_e

The label's part already explains x_spu, so net gains nothing from it. The constants c_e replace the
mean of b over y: they give every environment the same mean probability. Two environments keep
p(e | A), for which the preset for coloured digits was chosen.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from wri.densities.base import Density, HyperValues
from wri.densities.classifier import NO_COMMON_CLASS, ClassifierTraining
from wri.errors import check_option, warn_caller
from wri.stacked import Network, generator

Terms = Literal["plain", "squares", "products"]


@dataclass(frozen=True, kw_only=True)
class LabelAwareClassifier(Density):
    """Classifier of environments by the part of their shift that does not depend on the label.

    Parameters
    ----------
    terms : {"plain", "squares", "products"}, default="plain"
        What the classifier sees of x: x, also the squares of its columns, or also all products of
        two columns.
    hidden : int, default=64
        Units of the first hidden layer; 0 for none. Without hidden layers the classifier is a
        logistic regression on the terms and their products with y.
    second_hidden : int, default=32
        Units of the second hidden layer; 0 for none.
    steps : int, default=1000
        Training steps of the classifier.
    batch_size : int, default=512
        Rows per environment and step.
    learning_rate : float, default=3e-3
        Step size of Adam.
    weight_decay : float, default=1e-4
        Weight decay of both networks.
    bins : int, default=4
        Number of classes that a numeric target is cut into.
    refit_hidden : int, default=16
        Units of the small network on A.
    refit_steps : int, default=600
        Its training steps.
    refit_batch_size : int, default=1024
        Its rows per environment and step.
    refit_learning_rate : float, default=1e-2
        Its step size.

    Examples
    --------
    >>> import numpy as np
    >>> import torch
    >>> from wri.densities import LabelAwareClassifier
    >>> density = LabelAwareClassifier(hidden=0, second_hidden=0, steps=50, refit_steps=50)
    >>> rows = [np.full((20, 1), -1.0), np.full((20, 1), 1.0)]
    >>> flat = density.fit_with_targets(rows, [np.arange(20) % 2] * 2)
    >>> points = torch.tensor([[[-1.0], [1.0]]], dtype=torch.float64)
    >>> density.log_density(torch.as_tensor(flat)[None], points, 2, {})[0].argmax(0).tolist()
    [0, 1]
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
        """Return A's network; with classes, the one whose outputs A is the mean of."""
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

    def fit_with_targets(
        self,
        environments: Sequence[np.ndarray],
        targets: Sequence[np.ndarray],
        weights: Sequence[np.ndarray] | None = None,
    ) -> np.ndarray:
        rows, labels, _ = self._read(environments, targets)
        width = environments[0].shape[1]
        if not _common_classes(labels):
            warn_caller(NO_COMMON_CLASS)
            labels = [torch.zeros_like(own) for own in labels]
        every, flat = self._fit_every(rows, labels, width)
        shared = _mean_over_classes(every, flat, labels)  # [1, P]
        network = self._shared(len(rows), width)
        with torch.no_grad():
            mean_logits = [network.outputs(shared, own[None])[0] for own in rows]  # [n_e, E]
            given = [
                _of_class(every.outputs(flat, own[None])[0], y, len(rows)) - mean
                for own, y, mean in zip(rows, labels, mean_logits, strict=True)
            ]
        centred = [_centred(mean) for mean in mean_logits]
        if self.hidden and len(rows) > 2:
            small = self._fit_small(centred, given)
            with torch.no_grad():
                outputs = [self._small(len(rows)).outputs(small, own[None])[0] for own in centred]
            small[0, -len(rows) :] += _balancing_constants(outputs)  # c_e, the last layer's biases
        else:
            small = self._fit_small(centred, [torch.zeros_like(own) for own in given])
        return torch.cat([shared, small], dim=1)[0].double().numpy()

    def _fit_every(
        self, rows: Sequence[Tensor], labels: Sequence[Tensor], width: int
    ) -> tuple[Network, Tensor]:
        """Fit the network of step 1, with one output per class and environment."""
        count = len(rows)
        classes = 1 + max(int(own.max()) for own in labels)
        network = self._shared(count, width, classes)

        def loss(flat: Tensor, parts: list[Tensor]) -> Tensor:  # [1]
            x, y = parts  # [E, B, D], [E, B]
            return _cross_entropy(_of_class(network.outputs(flat, x[None]), y[None], count))

        fitting = ClassifierTraining(
            self.steps, self.batch_size, self.learning_rate, self.weight_decay
        )
        start = network.initial([0], "density")
        pairs = list(zip(rows, labels, strict=True))
        return network, fitting.fit(start, pairs, loss, generator(0, "classifier"))

    def fit_label_part(
        self, environments: Sequence[np.ndarray], targets: Sequence[np.ndarray]
    ) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        """Fit the other part of the shift: b, which depends on the label.

        Parameters
        ----------
        environments : sequence of ndarray of shape (n_e, D)
            Rows in units of about one.
        targets : sequence of ndarray of shape (n_e,)
            Labels of the rows.

        Returns
        -------
        part : callable
            From rows `[n, D]` and labels `[n]` to b `[n, E − 1]`: log densities given the label,
            each minus the mean over environments. Its mean over the labels is zero at every x.
        """
        rows, labels, edges = self._read(environments, targets)
        network, flat = self._fit_every(rows, labels, environments[0].shape[1])
        common = _common_classes(labels)

        def part(x: np.ndarray, y: np.ndarray) -> np.ndarray:
            ((terms,), (classes,), _) = self._read([x], [y], edges)
            with torch.no_grad():
                outputs = network.outputs(flat, terms[None])[0]
            every = outputs.unflatten(-1, (-1, len(rows)))[:, common]  # [n, C, E]
            own = classes[:, None] == torch.tensor(common)  # [n, C]; others have no b
            deviation = every - every.mean(1, keepdim=True)
            return _centred((deviation * own[:, :, None]).sum(1)).double().numpy()

        return part

    def _read(
        self,
        environments: Sequence[np.ndarray],
        targets: Sequence[np.ndarray],
        edges: np.ndarray | None = None,
    ) -> tuple[list[Tensor], list[Tensor], np.ndarray | None]:
        """Return terms, class numbers and, where targets are numbers, the edges of their bins."""
        rows = [torch.as_tensor(own, dtype=torch.float32) for own in environments]
        if edges is None and any(own.dtype.kind not in "iu" for own in targets):
            edges = np.quantile(
                np.concatenate(list(targets)), np.linspace(0, 1, self.bins + 1)[1:-1]
            )
        classes = targets if edges is None else [np.searchsorted(edges, own) for own in targets]
        labels = [torch.as_tensor(own, dtype=torch.long) for own in classes]
        return [_expand(own, self.terms) for own in rows], labels, edges

    def _fit_small(self, mean_logits: Sequence[Tensor], given: Sequence[Tensor]) -> Tensor:
        """Fit step 3's network `[1, P]` to A `[n_e, E − 1]`, with given logits `[n_e, E]` added."""
        network = self._small(len(mean_logits))

        def loss(flat: Tensor, parts: list[Tensor]) -> Tensor:  # [1]
            return _cross_entropy(network.outputs(flat, parts[0][None]) + parts[1][None])

        fitting = ClassifierTraining(
            self.refit_steps, self.refit_batch_size, self.refit_learning_rate, self.weight_decay
        )
        rows = list(zip(mean_logits, given, strict=True))
        return fitting.fit(network.initial([0], "density"), rows, loss, generator(0, "refit"))


def _expand(x: Tensor, terms: Terms) -> Tensor:  # [..., D] -> [..., D + squares]
    """Return x with squares or all products of its columns."""
    if terms == "plain":
        return x
    if terms == "squares":
        return torch.cat([x, x.square()], dim=-1)
    i, j = torch.triu_indices(x.shape[-1], x.shape[-1])
    return torch.cat([x, x[..., i] * x[..., j]], dim=-1)


def _centred(logits: Tensor) -> Tensor:  # [..., E] -> [..., E − 1]
    """Return differences to the mean over environments, without the last."""
    return (logits - logits.mean(-1, keepdim=True))[..., :-1]


def _cross_entropy(logits: Tensor) -> Tensor:  # [1, E, B, E] -> [1]
    """Return the cross-entropy of classifying the rows' environments."""
    own = logits.log_softmax(-1).diagonal(dim1=1, dim2=-1)  # [1, B, E]
    return -own.mean((1, 2))


def _of_class(logits: Tensor, labels: Tensor, environments: int) -> Tensor:
    """Return the logits `[…, E]` of the rows' classes, from those of all classes `[…, C·E]`."""
    every = logits.unflatten(-1, (-1, environments))  # […, C, E]
    place = labels[..., None, None].expand(*labels.shape, 1, environments)
    return every.gather(-2, place).squeeze(-2)


def _mean_over_classes(network: Network, flat: Tensor, labels: Sequence[Tensor]) -> Tensor:
    """Return the kept part of step 1 `[1, P]`: the mean over y of the last layer, which gives A."""
    count = len(labels)
    classes = network.widths[-1] // count
    common = _common_classes(labels)
    *below, weight, bias = network.packing.views(flat)
    last = [
        part[:, 0].unflatten(1, (classes, count))[:, common].mean(1) for part in (weight, bias)
    ]  # [1, E, H], [1, E, 1]
    return torch.cat([part.flatten(1) for part in (*below, *last)], dim=1)


def _balancing_constants(logits: Sequence[Tensor]) -> Tensor:  # [n_e, E] each -> [E]
    """Return constants that give every environment the mean probability 1/E.

    Rows of each environment count the same in total. The cross-entropy of the environments is
    least there.
    """

    def height(constants: np.ndarray) -> tuple[float, np.ndarray]:
        logs = [(own + torch.as_tensor(constants)).log_softmax(-1) for own in logits]
        loss = -sum(float(own[:, e].mean()) for e, own in enumerate(logs))
        return loss, torch.stack([own.exp().mean(0) for own in logs]).sum(0).numpy() - 1

    found = minimize(height, np.zeros(len(logits)), jac=True).x
    return torch.as_tensor(found - found.mean(), dtype=logits[0].dtype)


def _common_classes(labels: Sequence[Tensor]) -> list[int]:
    """Return the classes that every environment has."""
    return sorted(set.intersection(*({*own.unique().tolist()} for own in labels)))
