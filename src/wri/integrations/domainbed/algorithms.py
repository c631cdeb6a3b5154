"""Objectives of wri in DomainBed's training loop.

    algorithm = WRIAlgorithm(input_shape, num_classes, num_domains, hparams)
    algorithm.update(minibatches)        # one (x, y) per environment
    algorithm.predict(x)

Each is an `nn.Module` on a featurizer of the user, and an objective with a single run. WRI's
densities see the output of the featurizer and learn from the rows of the latest step.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from inspect import getdoc
from math import isfinite
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from wri.errors import InputError
from wri.integrations.domainbed.hparams import LABELS, domainbed_name, read_hparams
from wri.integrations.domainbed.one_run import (
    MinibatchDraws,
    Minibatches,
    ModuleNetwork,
    as_batch,
    fill,
    make_featurizer,
    output_width,
    separate,
)
from wri.objectives import OBJECTIVES, make_objective
from wri.objectives.base import Batch, Model, Start, StepContext
from wri.registry import OBJECTIVES as ENTRIES
from wri.registry import ObjectiveEntry
from wri.stacked import CROSS_ENTROPY, Streams


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
        ignored. `wri_final_rate` must be 1: a loop does not tell the number of steps.
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
            draws=MinibatchDraws(self._no_features),
        )
        self._shape, tensors = separate(self.objective.initial(start))
        self._state_names = tuple(tensors)
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor)
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
            nn.utils.clip_grad_norm_(self._trained(), self.hyper["clip_norm"])
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
        outputs: Tensor = self.classifier(self.featurizer(x).flatten(1))
        return outputs

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs of the classes, like `predict`.

        Parameters
        ----------
        x : Tensor of shape (N, ...)
            Inputs.

        Returns
        -------
        outputs : Tensor of shape (N, C)
            Logits.
        """
        return self.predict(x)

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
                "tell; leave it out, and the step size stays the same"
            )

    def _trained(self) -> list[nn.Parameter]:
        return [*self.featurizer.parameters(), *self.classifier.parameters()]

    def _make_optimizer(self) -> torch.optim.Adam:
        return torch.optim.Adam(
            self._trained(),
            lr=self.hyper["learning_rate"],
            weight_decay=self.hyper["weight_decay"],
        )

    def _read_state(self) -> Any:
        return fill(self._shape, {name: self.get_buffer(name) for name in self._state_names})

    def _write_state(self, state: Any) -> None:
        """Keep the state; parts that are no longer needed become zero."""
        _, tensors = separate(state)
        for name in self._state_names:
            kept = tensors.get(name)
            if kept is None:
                kept = torch.zeros_like(self.get_buffer(name))
            setattr(self, name, kept.detach())

    @torch.no_grad()
    def _features(self, batch: Batch) -> Batch:
        """Return the batch after the featurizer."""
        return batch._replace(x=self._network.represent(self._network.flat(), batch.x))

    def _no_features(self) -> Batch:
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
