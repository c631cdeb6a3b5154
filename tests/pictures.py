"""Small folders of pictures that tests make."""

import numpy as np
import torch
from PIL import Image
from torch import nn

from wri.features import Backbone, Preprocessing

SIDE = 24


def make_picture(label, domain, seed, side=SIDE):
    """A bright half, above for class 0 and below for others, in the domain's colour, with noise."""
    random = np.random.default_rng([label, domain, seed])
    pixels = random.integers(0, 60, (side, side, 3), dtype=np.uint8)
    half = slice(0, side // 2) if label == 0 else slice(side // 2, side)
    pixels[half, :, domain % 3] += 180
    return Image.fromarray(pixels)


def make_folder(root, domains=("north", "south"), classes=("cat", "dog"), each=3):
    """ROOT/DOMAIN/CLASS/00.png …"""
    for d, domain in enumerate(domains):
        for c, label in enumerate(classes):
            folder = root / domain / label
            folder.mkdir(parents=True)
            for n in range(each):
                make_picture(c, d, n).save(folder / f"{n:02}.png")
    return root


class Halves(nn.Module):
    """Mean colours of the upper and the lower half through a layer: six features."""

    def __init__(self, seed=0):
        super().__init__()
        random = torch.Generator().manual_seed(seed)
        self.layer = nn.Linear(6, 6)
        with torch.no_grad():
            self.layer.weight.copy_(torch.eye(6) + 0.1 * torch.randn(6, 6, generator=random))
            self.layer.bias.zero_()

    def forward(self, x):  # [B, 3, H, W] -> [B, 6]
        upper, lower = x.chunk(2, dim=2)
        return self.layer(torch.cat([upper.mean((2, 3)), lower.mean((2, 3))], 1))


def make_backbone(seed=0, **preprocessing):
    return Backbone("halves", Halves(seed), Preprocessing(side=16, crop=1.0, **preprocessing))
