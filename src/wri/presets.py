"""Presets by name: defaults of a model specification.

Values of hyper-parameters are with their objectives (`objectives/`), keyed by these names; unset
values fall back to `domainbed`. Importable without PyTorch.
"""

from dataclasses import dataclass

from wri.errors import InputError, check_option

FALLBACK = "domainbed"
SMALLEST_HIDDEN = (16, 8)
NETWORK = (32, 16)  # hidden layers of an objective that needs some, in a linear preset


@dataclass(frozen=True, kw_only=True)
class Preset:
    """Defaults of a model specification that are not hyper-parameters."""

    about: str
    steps: int = 500
    standardise: bool = False  # inputs, and the target of a regression
    linear: bool = False  # no hidden layers unless given
    layers: int = 2  # hidden layers unless given; the second is half as wide as the first
    double_up_to: int = 0  # training rows up to which runs train in double precision
    numbers_of: str | None = None  # the preset whose hyper-parameters it takes
    solved: bool = False  # linear predictors with smooth objectives are solved, not trained
    waits_for_penalty: bool = False  # no checkpoint counts before the penalty has its full weight


PRESETS = {
    "domainbed": Preset(about="appendix E.5 of the paper, on DomainBed's pretrained features"),
    "cmnist": Preset(about="the ColoredMNIST family as the paper prints it"),
    "published": Preset(
        about="cmnist's numbers; WRI's weights as the paper's code ran them", numbers_of="cmnist"
    ),
    "one-layer": Preset(
        about="domainbed's numbers; one hidden layer, as appendix E.5 prints",
        layers=1,
        numbers_of="domainbed",
    ),
    "simulation": Preset(about="the paper's multi-dimensional simulation", steps=100),
    "coloured": Preset(
        about="our numbers for the ColoredMNIST family, the same for all objectives"
    ),
    "table": Preset(
        about="our numbers for tables; the defaults of the estimators",
        steps=400,
        standardise=True,
        linear=True,
        # small tables cost no more in double precision, and depend less on the order of their rows
        double_up_to=2048,
        solved=True,
        waits_for_penalty=True,
    ),
}


def find_preset(name: str) -> Preset:
    """Return the preset of that name."""
    check_option("preset", name, tuple(PRESETS))
    return PRESETS[name]


def default_hidden(width: int, layers: int) -> tuple[int, ...]:
    """Return half and a quarter of the inputs, as the paper's code ran, at least (16, 8) units."""
    first, second = SMALLEST_HIDDEN
    return (max(first, width // 2), max(second, width // 4))[:layers]


def check_hidden(hidden: tuple[int, ...]) -> None:
    """Refuse hidden layers without units."""
    if min(hidden, default=1) < 1:
        raise InputError(f"hidden layers need at least one unit each, not {hidden}")
