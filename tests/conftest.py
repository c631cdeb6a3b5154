import numpy as np
import pytest
import torch

from helpers import make_bank

torch.set_num_threads(1)  # tiny tensors: a second thread only waits


@pytest.fixture
def bank():
    return make_bank()


@pytest.fixture
def environments():
    """Three environments of unequal size within 200 rows, and the rest."""
    return [np.arange(0, 60), np.arange(60, 100), np.arange(100, 180)]
