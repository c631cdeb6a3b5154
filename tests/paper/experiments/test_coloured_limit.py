"""The exact minimum on coloured digits, against closed forms."""

import numpy as np
import pytest

from wri.paper.experiments.coloured import cell_shares, exact_minimum
from wri.paper.simulations import ideal_accuracy


@pytest.mark.parametrize("dataset", ["cmnist", "hcmnist", "hcmnist-cs"])
def test_shares_sum_to_one_and_colours_agree_with_labels_as_often_as_they_should(dataset):
    for environment, flips in enumerate((0.1, 0.2, 0.9)):
        shares = cell_shares(dataset, environment, flips)
        assert shares.sum() == pytest.approx(1)
        right, wrong = shares
        agree = right[[0, 2]].sum() + wrong[[1, 3]].sum()  # colour and label on the same side
        assert agree == pytest.approx(1 - flips)


def test_without_a_penalty_it_is_the_log_odds_of_both_environments_together():
    both = cell_shares("hcmnist-cs", 0, 0.1) + cell_shares("hcmnist-cs", 1, 0.2)
    found = exact_minimum("hcmnist-cs", "cells", 0.0)
    np.testing.assert_allclose(found.logits, np.log(both[0] / both[1]), atol=1e-3)
    assert found.logits[3] < 0  # hard digits in the other colour are taken for the other side
    assert found.accuracy[2] < 50


@pytest.mark.parametrize("weighting", ["cells", "groups"])
@pytest.mark.parametrize("dataset", ["hcmnist", "hcmnist-cs"])
def test_weighted_risk_invariance_predicts_the_digits_side_in_every_cell(dataset, weighting):
    found = exact_minimum(dataset, weighting, 30.0)
    assert (found.logits > 0).all()
    np.testing.assert_allclose(found.accuracy, 100 * ideal_accuracy(dataset))
    assert found.unrelated == pytest.approx(found.accuracy[2])


def test_equal_risks_need_the_colour_where_the_digits_shift():
    assert exact_minimum("hcmnist-cs", "uniform", 30.0).accuracy[2] < 50
    assert exact_minimum("hcmnist", "uniform", 30.0).accuracy[2] > 80
