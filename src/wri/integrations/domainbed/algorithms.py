"""Objectives of wri in DomainBed's training loop.

    algorithm = WRIAlgorithm(input_shape, num_classes, num_domains, hparams)
    algorithm.update(minibatches)        # one (x, y) per environment
    algorithm.predict(x)

Each is an `nn.Module` on a featurizer of the user, and an objective with a single run. Objectives
see `head ∘ Φ` with all parameters in one row. `flat()` is that row of the modules' own parameters,
and gradients of it reach them. Other rows, such as MLDG's after its inner step, replace them for
one call. Inputs of any shape are flattened in batches and unflattened here. An objective's state is
named tensors, which the module keeps as buffers. WRI's densities see the output of the featurizer
and learn from the rows of the latest step.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cached_property
from importlib import import_module
from inspect import getdoc
from math import isfinite
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

from wri.errors import InputError
from wri.integrations.domainbed.hparams import LABELS, domainbed_name, read_hparams
from wri.objectives import OBJECTIVES, make_objective
from wri.objectives.base import Batch, DrawnRows, Draws, Model, Start, StepContext
from wri.registry import OBJECTIVES as ENTRIES
from wri.registry import ObjectiveEntry
from wri.stacked import CROSS_ENTROPY, Streams, View, Views

HIDDEN = 64  # units of the default featurizer's layers
Minibatches = Sequence[tuple[Tensor, Tensor]]


class ModuleNetwork:
    """Featurizer `[N, *input_shape]` to `[N, width]`, flattened, and classifier to `[N, C]`."""

    def __init__(
        self, featurizer: nn.Module, classifier: nn.Module, input_shape: Sequence[int], width: int
    ) -> None:
        self.featurizer = featurizer
        self.classifier = classifier
        self.input_shape = tuple(input_shape)
        self.width = width
        self.latest: tuple[Tensor | None, Tensor | None] = (None, None)  # x and its outputs

    def flat(self) -> Tensor:  # [1, P]
        """Return the modules' parameters in one row."""
        parameters = [p.reshape(1, -1) for module in self._both for p in module.parameters()]
        return torch.cat(parameters, dim=1)

    def view_width(self, what: View) -> int:
        if what == "x":
            raise InputError("densities see the featurizer's output here, 'phi', not 'x'")
        return self.width if what == "phi" else output_width(self.classifier, (self.width,))

    def represent(self, flat: Tensor, x: Tensor) -> Tensor:  # [K, …, D] -> [K, …, F]
        self.latest = (x, None)
        rows = x.reshape(len(x), -1, *self.input_shape)  # [K, N, *input_shape]
        return self._call(0, flat, rows).unflatten(1, x.shape[1:-1])

    def head(self, flat: Tensor, phi: Tensor) -> Tensor:  # [K, …, F] -> [K, …, C]
        outputs = self._call(1, flat, phi.flatten(1, -2)).unflatten(1, phi.shape[1:-1])
        self.latest = (self.latest[0], outputs.detach())
        return outputs

    def outputs(self, flat: Tensor, x: Tensor) -> Tensor:  # [K, …, D] -> [K, …, C]
        return self.head(flat, self.represent(flat, x))

    def views(self, flat: Tensor, x: Tensor) -> Views:
        phi = self.represent(flat, x)
        return Views(x, phi, self.head(flat, phi))

    @property
    def _both(self) -> tuple[nn.Module, nn.Module]:
        return self.featurizer, self.classifier

    def _call(self, which: int, flat: Tensor, rows: Tensor) -> Tensor:  # [K, N, …] -> [K, N, F]
        """Call copy k of a module on its own rows, with the parameters of row k."""
        named = [(m, name, p) for m in self._both for name, p in m.named_parameters()]
        pieces = flat.split([p.numel() for *_, p in named], dim=1)  # [K, numbers of p] each
        module, made = self._both[which], []
        for k, inputs in enumerate(rows):
            values = {
                name: piece[k].view_as(p)
                for (owner, name, p), piece in zip(named, pieces, strict=True)
                if owner is module
            }
            made.append(functional_call(module, values, (inputs,)).flatten(1))
        return torch.stack(made)


def make_featurizer(input_shape: Sequence[int], hparams: dict[str, Any], given: Any) -> nn.Module:
    """Return the given featurizer, DomainBed's if it is installed, or a small perceptron."""
    if isinstance(given, nn.Module):
        return given
    if given is not None:
        return given(input_shape, hparams)
    try:
        networks = import_module("domainbed.networks")
    except ModuleNotFoundError:
        if len(input_shape) != 1:
            raise InputError(
                f"inputs of shape {tuple(input_shape)} need a featurizer and DomainBed is not "
                "installed; give featurizer=, a module that makes features of them"
            ) from None
        return nn.Sequential(
            nn.Linear(input_shape[0], HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU()
        )
    return networks.Featurizer(tuple(input_shape), hparams)


def output_width(featurizer: nn.Module, input_shape: Sequence[int]) -> int:
    """Return the featurizer's `n_outputs`, as in DomainBed, or the width of its output."""
    width = getattr(featurizer, "n_outputs", None)
    if isinstance(width, int):
        return width
    like = next(iter(featurizer.parameters()), torch.zeros(()))
    was_training = featurizer.training
    featurizer.eval()
    with torch.no_grad():
        made = featurizer(torch.zeros(2, *input_shape, dtype=like.dtype, device=like.device))
    featurizer.train(was_training)
    return int(made.flatten(1).shape[1])


def as_batch(minibatches: Minibatches, environments: int, dtype: torch.dtype) -> Batch:
    """Return `[1, E, B, D]`; short minibatches are padded with their first row, at weight 0."""
    if len(minibatches) != environments:
        raise InputError(
            f"update needs one minibatch per environment ({environments}, num_domains), but "
            f"{len(minibatches)} were given"
        )
    sizes = [len(y) for _, y in minibatches]
    if min(sizes) == 0:
        raise InputError(f"minibatch {sizes.index(0)} has no rows; leave no environment empty")
    longest = max(sizes)
    x = torch.stack([_pad(x.flatten(1), longest) for x, _ in minibatches])[None]
    y = torch.stack([_pad(y, longest) for _, y in minibatches])[None]
    if min(sizes) == longest:
        return Batch(x, y)
    size = torch.tensor(sizes, device=x.device)[:, None]  # [E, 1]
    real = torch.arange(longest, device=x.device) < size
    return Batch(x, y, (real / size).to(dtype)[None])


def _pad(rows: Tensor, longest: int) -> Tensor:  # [n, …] -> [longest, …]
    return torch.cat([rows, rows[:1].expand(longest - len(rows), *rows.shape[1:])])


class MinibatchDraws(Draws):
    """Rows of the latest step for all of its density steps."""

    def __init__(self, features: Callable[[], Batch]) -> None:
        self._features = features  # made when they are wanted: not every step has density steps

    @cached_property
    def _latest(self) -> Batch:
        return self._features()

    @cached_property
    def _rows(self) -> Tensor:  # [1, E, B], numbers of the rows
        y = self._latest.y
        return torch.arange(y.numel(), device=y.device).view_as(y)

    @property
    def rows_per_step(self) -> int:
        return self._latest.y.numel()

    def density_rows(self, runs: Sequence[int], steps: Sequence[int]) -> Iterator[DrawnRows]:
        rows = self._rows[:, None].expand(1, steps[0], *self._rows.shape[1:])
        yield DrawnRows(rows, rows, self._latest.weight)

    def batch(self, rows: Tensor) -> Batch:
        return Batch(self._latest.x.flatten(0, -2)[rows], self._latest.y.flatten()[rows])

    def n_learned(self, run: int) -> int:
        return self._latest.y.numel()

    def learned(self, runs: Sequence[int]) -> Iterator[Tensor]:
        yield self._rows.flatten(1)

    def split(self, run: int) -> Hashable:
        return 0


def map_leaves(state: Any, change: Callable[[str, Any], Any], name: str = "state") -> Any:
    """Return a state with `change(name, leaf)` in place of every leaf; names tell the way to it."""
    if state is None:
        return None
    names = getattr(state, "_fields", None)  # of a named tuple
    if is_dataclass(state):
        names = [field.name for field in fields(state)]
    if names is None:
        return change(name, state)
    return type(state)(
        **{key: map_leaves(getattr(state, key), change, f"{name}_{key}") for key in names}
    )


class Algorithm(nn.Module):
    """Base class of wri's objectives as DomainBed algorithms.

    Parameters
    ----------
    input_shape : sequence of int
        Shape of a row.
    num_classes : int
        Number of classes.
    num_domains : int
        Number of training environments.
    hparams : mapping of str to Any
        Hyper-parameters by DomainBed's names, such as `lr`, `weight_decay`, `irm_lambda`
        (`hparam_settings` lists those of an algorithm), or `wri_clip_norm`, the largest norm of
        the gradient. Missing ones have the defaults of the preset `domainbed`; unknown ones are
        ignored. `wri_final_rate` must be 1: a loop does not provide the number of steps.
    featurizer : Module, callable or None, default=None
        Module from inputs to features, or a function of `input_shape` and `hparams` that makes one.
        None: DomainBed's own if it is installed, else a small perceptron for flat inputs.

    Attributes
    ----------
    featurizer : torch.nn.Module
        Φ.
    classifier : torch.nn.Linear
        Linear layer on Φ(x).
    optimizer : torch.optim.Adam
        Made again when a penalty starts, as in DomainBed.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from wri.integrations.domainbed import ALGORITHMS
    >>> _ = torch.manual_seed(0)
    >>> algorithm = ALGORITHMS["VREx"]((4,), 2, 2, {"lr": 0.01}, featurizer=nn.Linear(4, 3))
    >>> minibatches = [(torch.randn(8, 4), torch.arange(8) % 2) for _ in range(2)]
    >>> sorted(algorithm.update(minibatches))
    ['loss', 'penalty', 'risk']
    >>> algorithm.predict(torch.zeros(5, 4)).shape
    torch.Size([5, 2])
    """

    objective_name: ClassVar[str]
    options: ClassVar[Mapping[str, Any]] = {}
    """Options of the objective; a subclass may set others."""

    def __init__(
        self,
        input_shape: Sequence[int],
        num_classes: int,
        num_domains: int,
        hparams: Mapping[str, Any],
        featurizer: nn.Module | Callable[..., nn.Module] | None = None,
    ) -> None:
        super().__init__()
        self.objective = make_objective(self.objective_name, **self.options)
        self.hparams = dict(hparams)
        self.hyper = read_hparams(self.objective_name, hparams)
        self.objective.check(self.hyper)
        self._check(num_domains)
        self.num_domains = num_domains
        self.featurizer = make_featurizer(input_shape, self.hparams, featurizer)
        width = output_width(self.featurizer, input_shape)
        like = next(iter(self.featurizer.parameters()), torch.zeros(()))
        self.classifier = nn.Linear(width, num_classes, dtype=like.dtype, device=like.device)
        self._network = ModuleNetwork(self.featurizer, self.classifier, input_shape, width)
        self._on_features = ModuleNetwork(nn.Identity(), self.classifier, (width,), width)
        self.register_buffer("seed", torch.randint(2**31 - 1, (1,)))
        self.register_buffer("update_count", torch.zeros(1, dtype=torch.long))
        start = Start(
            seeds=self._seeds,
            environments=num_domains,
            network=self._network,
            dtype=like.dtype,
            device=str(like.device),
            draws=MinibatchDraws(self._no_batch),
        )
        state = self.objective.initial(start)
        map_leaves(state, self.register_buffer)
        self._state_names = map_leaves(state, lambda name, _: name)  # in the form of the state
        self.optimizer = self._make_optimizer()

    def update(
        self, minibatches: Minibatches, unlabeled: Sequence[Tensor] | None = None
    ) -> dict[str, float]:
        """Take one training step.

        Parameters
        ----------
        minibatches : sequence of (Tensor, Tensor)
            One pair (x, y) per environment: `[B, *input_shape]` and class numbers `[B]`.
        unlabeled : sequence of Tensor or None, default=None
            Not used.

        Returns
        -------
        report : dict of str to float
            `loss`; and, unless the objective mixes or splits rows, `risk`, the mean risk of the
            environments, and `penalty`, the weighted penalty.
        """
        like = self.classifier.weight
        step = int(self.get_buffer("update_count"))
        batch = as_batch(minibatches, self.num_domains, like.dtype)
        hyper = {name: like.new_tensor([value]) for name, value in self.hyper.items()}
        random = Streams(self._seeds, f"step {step}", like.dtype, str(like.device))
        context = StepContext(step, hyper, random)
        resets_at = self.objective.resets_at(hyper)
        if step > 0 and resets_at is not None and int(resets_at) == step:
            self.optimizer = self._make_optimizer()
        model = Model(self._network, self._network.flat(), CROSS_ENTROPY)
        losses, state = self.objective.loss(model, batch, self._read_state(), context)
        self.optimizer.zero_grad()
        losses.sum().backward()
        if isfinite(self.hyper["clip_norm"]):
            nn.utils.clip_grad_norm_(self.parameters(), self.hyper["clip_norm"])
        report = self._report(float(losses.detach()), batch)
        self.optimizer.step()
        with torch.no_grad():
            flat = self._on_features.flat()
        state = self.objective.after_step(
            Model(self._on_features, flat, CROSS_ENTROPY),
            state,
            context,
            MinibatchDraws(lambda: self._features(batch)),
        )
        self._write_state(state)
        self.get_buffer("update_count").add_(1)
        return report

    def predict(self, x: Tensor) -> Tensor:
        """Return the outputs of the classes.

        Parameters
        ----------
        x : Tensor of shape (N, ...)
            Inputs.

        Returns
        -------
        outputs : Tensor of shape (N, C)
            Logits.
        """
        return self.classifier(self.featurizer(x).flatten(1))

    forward = predict

    @property
    def _seeds(self) -> list[int]:
        return [int(self.get_buffer("seed"))]

    def _check(self, num_domains: int) -> None:
        objective = self.objective
        if num_domains < objective.least_environments:
            raise InputError(
                f"{objective.name} needs {objective.least_environments} training environments, but "
                f"num_domains is {num_domains}; hold out fewer"
            )
        density = objective.density
        if density is not None and density.learning == "refit":
            raise InputError(
                f"{type(density).__name__} is fitted on whole environments, but a training loop "
                "has only minibatches; use Bounded() or EnvironmentClassifier()"
            )
        rate = self.hyper["final_rate"]
        if rate != 1:
            name = domainbed_name(objective.name, "final_rate")
            raise InputError(
                f"{name} = {rate:g} needs the number of steps, which a training loop does not "
                "provide; leave it out, and the step size stays the same"
            )

    def _make_optimizer(self) -> torch.optim.Adam:
        return torch.optim.Adam(
            self.parameters(),
            lr=self.hyper["learning_rate"],
            weight_decay=self.hyper["weight_decay"],
        )

    def _read_state(self) -> Any:
        return map_leaves(self._state_names, lambda name, _: self.get_buffer(name))

    def _write_state(self, state: Any) -> None:
        """Keep the state; parts that are no longer needed become zero."""
        kept: dict[str, Tensor] = {}
        map_leaves(state, kept.__setitem__)
        for name, old in [*self.named_buffers(recurse=False)]:
            if name.startswith("state"):
                setattr(self, name, kept.get(name, torch.zeros_like(old)).detach())

    @torch.no_grad()
    def _features(self, batch: Batch) -> Batch:
        """Return the batch after the featurizer."""
        return batch._replace(x=self._network.represent(self._network.flat(), batch.x))

    def _no_batch(self) -> Batch:
        raise TypeError("there is no minibatch before the first step")

    def _report(self, loss: float, batch: Batch) -> dict[str, float]:
        x, outputs = self._network.latest
        self._network.latest = (None, None)
        if x is not batch.x or outputs is None:  # mixed or split on the way
            return {"loss": loss}
        risk = float(batch.mean(CROSS_ENTROPY.per_example(outputs, batch.y)).mean())
        return {"loss": loss, "risk": risk, "penalty": loss - risk}


def derive(entry: ObjectiveEntry) -> type[Algorithm]:
    """Make `WRIAlgorithm` from the entry of WRI, with its complete help."""
    shared = (getdoc(Algorithm) or "").partition("\n\n")[2]
    has_densities = "density_on" in {f.name for f in fields(OBJECTIVES[entry.name])}  # type: ignore[arg-type]
    namespace = {
        "__doc__": f"{entry.label} as a DomainBed algorithm: {entry.about}.\n\n{shared}\n",
        "__module__": "wri.integrations.domainbed",
        "objective_name": entry.name,
        "options": {"density_on": "phi"} if has_densities else {},
    }
    return type(f"{entry.label}Algorithm", (Algorithm,), namespace)


ALGORITHMS: dict[str, type[Algorithm]] = {
    label: derive(ENTRIES[name]) for label, name in LABELS.items()
}
"""Algorithms by DomainBed's names: "ERM", "IRM", …, "WRI"."""
