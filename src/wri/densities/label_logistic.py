"""Weights of the invariant features by two penalised logistic regressions, without draws.

The same idea as `label_aware`: in log p_i(x, y)/p_j(x, y) = a(x_inv) + b(x_spu, y) the part that
does not depend on y is the shift of the invariant features. Here every step is convex:

    1.  v = x · share         columns that tell about the target in the same way everywhere
                              (`relevant_columns`); of wide tables, principal components
    2.  T(v)                  v, and its squares and products as far as the width allows
    3.  e ~ [T, (onehot(y) − 1/C) ⊗ (1, T)]    multinomial logistic regression, ridge penalty
    4.  A = the part of 3 on T alone, centred over environments, cut at ±4 standard deviations
    5.  e ~ [A, products of A]    again a multinomial logistic regression: log d_e = log p(e | A)

All environments count alike, and weight 2 counts a row twice. A numeric target is cut into bins
with equal numbers of rows; classes that some environment lacks do not enter A. Of tables with more
than `MOST_ROWS` rows a sample is used, drawn by the contents of the rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar, Literal

import numpy as np
import torch
from scipy.sparse.linalg import eigsh
from torch import Tensor

from wri.densities.base import Density, HyperValues
from wri.densities.classifier import NO_COMMON_CLASS
from wri.densities.relevant_columns import column_shares
from wri.errors import warn_caller
from wri.rows import hash_contents
from wri.stacked import Packing
from wri.stacked.linear import LinearSolver, MemoryTable, Sums

MOST_PRODUCTS = 24  # columns whose products are terms
MOST_SQUARES = 64  # columns whose squares are terms; wider tables have components
COMPONENTS = 24
CUT = 4.0  # standard deviations of A
ACCURACY = 1e-3  # largest component of the gradient of both regressions; chance moves them more
MOST_ROWS = 4096  # that both regressions are fitted to: with more, losses elsewhere hardly move
FEWEST_ROWS = 500  # of an environment in the sample, if it has them
MOST_REFIT_PRODUCTS = 8  # environments up to which A's products are terms


def _shapes(width: int, environments: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the parameters in the order in which they are packed."""
    views = width if width <= MOST_SQUARES else COMPONENTS
    terms = _count_terms(views)
    products = environments * (environments + 3) // 2
    return {
        "view": (width, views),
        "centre": (views,),
        "mean": (terms,),
        "coefficient": (terms, environments),
        "offset": (environments,),
        "middle": (environments,),  # of A
        "spread": (environments,),
        "refit": (
            products if environments <= MOST_REFIT_PRODUCTS else 2 * environments,
            environments,
        ),
        "refit_offset": (environments,),
    }


def _count_terms(views: int) -> int:
    return views * (views + 3) // 2 if views <= MOST_PRODUCTS else 2 * views


@dataclass(frozen=True, kw_only=True)
class LabelLogistic(Density):
    """Classifier of environments by the part of their shift that does not depend on the label.

    The convex form of `LabelAwareClassifier`: fitted without draws, for tables.

    Parameters
    ----------
    pseudo_rows : float, default=1.0
        Ridge penalty of the first regression, as a number of rows.
    bins : int, default=4
        Number of classes that a numeric target is cut into.
    relevant : bool, default=True
        Whether weights see only columns that tell about the target in the same way everywhere.

    Examples
    --------
    >>> import numpy as np
    >>> import torch
    >>> from wri.densities import LabelLogistic
    >>> random = np.random.default_rng(1)
    >>> rows = [random.normal(mean, 1, (100, 1)) for mean in (-1, 1)]
    >>> y = [(own[:, 0] + random.normal(size=100) > 0).astype(int) for own in rows]
    >>> flat = LabelLogistic().fit_with_targets(rows, y)
    >>> points = torch.tensor([[[-1.0], [1.0]]], dtype=torch.float64)
    >>> logs = LabelLogistic().log_density(torch.as_tensor(flat)[None], points, 2, {})
    >>> logs[0].argmax(0).tolist()
    [0, 1]
    """

    pseudo_rows: float = 1.0
    bins: int = 4
    relevant: bool = True
    learning: ClassVar[Literal["refit"]] = "refit"
    penalised: ClassVar[bool] = False
    comparable_over_x: ClassVar[bool] = False
    needs_targets: ClassVar[bool] = True
    takes_weights: ClassVar[bool] = True

    def initial(self, seeds: Sequence[int], environments: int, width: int) -> np.ndarray:
        return np.zeros((len(seeds), Packing((*_shapes(width, environments).values(),)).size))

    def log_density(self, flat: Tensor, x: Tensor, environments: int, hyper: HyperValues) -> Tensor:
        shapes = _shapes(x.shape[-1], environments)
        p = dict(zip(shapes, Packing((*shapes.values(),)).views(flat), strict=True))
        if len(flat) == 1:  # columns that are not used cost nothing
            p = _only_used(p)
        rows = x.flatten(1, -2)  # [R, n, D]
        view = rows @ p["view"] - p["centre"][:, None]
        terms = _expand(view, shapes["centre"][0]) - p["mean"][:, None]
        logits = terms @ p["coefficient"] + p["offset"][:, None]
        centred = logits - logits.mean(-1, keepdim=True)
        cut = ((centred - p["middle"][:, None]) / p["spread"][:, None]).clamp(-CUT, CUT)
        outputs = _expand_again(cut) @ p["refit"] + p["refit_offset"][:, None]  # [R, n, E]
        found = outputs.movedim(-1, 1).log_softmax(1)
        return found.unflatten(-1, x.shape[1:-1])

    def used_columns(self, flat: np.ndarray, width: int) -> np.ndarray:  # [P] -> [D] bool
        shape = _shapes(width, 2)["view"]  # it does not depend on the number of environments
        return np.any(flat[: prod(shape)].reshape(shape) != 0, axis=1)

    def fit_with_targets(
        self,
        environments: Sequence[np.ndarray],
        targets: Sequence[np.ndarray],
        weights: Sequence[np.ndarray] | None = None,
    ) -> np.ndarray:
        if weights is None:
            weights = [np.ones(len(own)) for own in environments]
        environments, targets, weights = _sample(environments, targets, weights)
        count, width = len(environments), environments[0].shape[1]
        view = _components(environments, weights) if width > MOST_SQUARES else np.eye(width)
        seen = [own @ view for own in environments]
        share = np.ones(view.shape[1])
        if self.relevant:
            share = column_shares(seen, targets, weights)
        view = view * share
        every = np.concatenate(seen) * share
        joined = np.concatenate(weights)
        centre = joined @ every / joined.sum()
        # the first regression, on the terms of the columns that are used
        kept = share > 0
        used = _used_terms(torch.as_tensor(kept)).numpy()
        terms = _expand(torch.as_tensor((every - centre)[:, kept]), len(kept)).numpy()
        mean, coefficient = np.zeros(len(used)), np.zeros((len(used), count))
        mean[used], unit = _scaling(terms, joined)
        terms -= mean[used]
        standard = terms / unit
        label = _label_codes(targets, weights, self.bins)  # [n, C − 1]
        given_label = (standard * label[:, [c]] for c in range(label.shape[1]))
        found, offset = _classify(
            np.column_stack([standard, label, *given_label]), weights, self.pseudo_rows
        )
        coefficient[used] = found[: terms.shape[1]] / unit[:, None]
        a = terms @ coefficient[used] + offset
        a -= a.mean(1, keepdims=True)
        middle, spread = _scaling(a, joined)
        again = _expand_again(torch.as_tensor(np.clip((a - middle) / spread, -CUT, CUT))).numpy()
        refit, refit_offset = _classify(again, weights, 1.0)
        parts = view, centre, mean, coefficient, offset, middle, spread, refit, refit_offset
        return np.concatenate([np.ravel(part) for part in parts])


def _used_terms(kept: Tensor) -> Tensor:  # [V] bool -> [T] bool
    """Return the terms of some of the columns."""
    return _expand(kept[None].double(), len(kept))[0] > 0


def _only_used(p: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the parameters without columns that have no weight, of one run."""
    kept = (p["view"][0] != 0).any(0)
    used = _used_terms(kept)
    return p | {
        "view": p["view"][..., kept],
        "centre": p["centre"][:, kept],
        "mean": p["mean"][:, used],
        "coefficient": p["coefficient"][:, used],
    }


def _expand(view: Tensor, columns: int) -> Tensor:  # [..., V] -> [..., T]
    """Return the columns with their squares, or all products of tables of few columns."""
    if columns > MOST_PRODUCTS:
        return torch.cat([view, view.square()], -1)
    return _with_products(view)


def _expand_again(a: Tensor) -> Tensor:  # [..., E] -> [..., T']
    if a.shape[-1] > MOST_REFIT_PRODUCTS:
        return torch.cat([a, a.square()], -1)
    return _with_products(a)


def _with_products(x: Tensor) -> Tensor:  # [..., V] -> [..., V (V + 3) / 2]
    # slices, because a lookup of both factors takes three times as long
    return torch.cat([x, *(x[..., i : i + 1] * x[..., i:] for i in range(x.shape[-1]))], -1)


def _sample(
    rows: Sequence[np.ndarray], targets: Sequence[np.ndarray], weights: Sequence[np.ndarray]
) -> tuple[Sequence[np.ndarray], Sequence[np.ndarray], Sequence[np.ndarray]]:
    """Return a sample of the rows of large environments, drawn by their contents."""
    most = max(FEWEST_ROWS, MOST_ROWS // len(rows))
    if sum(map(len, rows)) <= MOST_ROWS:
        return rows, targets, weights
    kept = [
        np.arange(len(y)) if len(y) <= most else hash_contents(x, y).argpartition(most)[:most]
        for x, y in zip(rows, targets, strict=True)
    ]
    return tuple(
        [own[some] for own, some in zip(part, kept, strict=True)]
        for part in (rows, targets, weights)
    )  # type: ignore[return-value]


def _scaling(values: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return weighted means and standard deviations; 1 where a column is constant."""
    share = weights / weights.sum()
    mean = share @ values
    spread = np.sqrt(share @ np.square(values - mean))
    return mean, np.where(spread > 1e-9, spread, 1.0)


def _label_codes(
    targets: Sequence[np.ndarray], weights: Sequence[np.ndarray], bins: int
) -> np.ndarray:  # [n, C − 1]
    """Return onehot(y) − 1/C of the classes that every environment has; zero for the others."""
    joined = np.concatenate(list(targets))
    if joined.dtype.kind == "f":
        order = joined.argsort(kind="stable")
        ends = np.concatenate(weights)[order].cumsum()
        edges = joined[order][np.searchsorted(ends, ends[-1] * np.arange(1, bins) / bins)]
        codes = [np.searchsorted(edges, own) for own in targets]
    else:
        codes = list(targets)
    present = [set(np.unique(own)) for own in codes]
    common = sorted(set.intersection(*present))
    if len(common) < 2:
        if not common:
            warn_caller(NO_COMMON_CLASS)
        return np.zeros((len(joined), 0))
    every = np.concatenate(codes)
    label = (every[:, None] == np.array(common)) - 1 / len(common)
    label[~np.isin(every, common)] = 0
    return label[:, :-1]


def _classify(
    rows: np.ndarray, weights: Sequence[np.ndarray], pseudo_rows: float
) -> tuple[np.ndarray, np.ndarray]:  # [n, T] -> [T, E], [E]
    """Return coefficients of a multinomial logistic regression of the environments."""
    count, sizes = len(weights), [len(own) for own in weights]
    share = np.concatenate([own / own.sum() for own in weights])[:, None]
    table = MemoryTable(
        x=rows,
        y=np.repeat(np.arange(count), sizes),
        parts=[slice(0, len(rows))],
        weights=share / count,
        loss="cross_entropy",
        outputs=count,
    )
    solver = LinearSolver(table, pseudo_rows / sum(own.sum() for own in weights))
    one = Sums(np.ones((1, 1)))
    found = solver.solve(
        lambda weight, offset: table.differentiate(
            weight, offset, lambda sums: (float(sums.losses[0, 0]), one)
        ),
        tolerance=ACCURACY,
    )
    return found.weight, found.offset


def _components(
    environments: Sequence[np.ndarray], weights: Sequence[np.ndarray]
) -> np.ndarray:  # [D, V]
    """Return the first principal components within environments, scaled to unit variance."""
    parts = []
    for own, weight in zip(environments, weights, strict=True):
        share = weight / weight.sum()
        parts.append((own - share @ own) * np.sqrt(share)[:, None])
    joined = np.concatenate(parts)
    inner = joined.T @ joined / len(parts)
    inner += 1e-12 * max(inner.trace(), 1.0) * np.eye(len(inner))  # constant columns: not zero
    values, vectors = eigsh(inner, COMPONENTS, v0=np.ones(len(inner)))
    # the sign of a component is arbitrary: its largest entry is positive
    vectors *= np.sign(vectors[np.abs(vectors).argmax(0), np.arange(COMPONENTS)])
    return vectors / np.sqrt(np.maximum(values, 1e-12 * values.max()))
