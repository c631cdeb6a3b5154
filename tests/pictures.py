"""Small folders of pictures that tests make."""

import numpy as np
from PIL import Image

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
