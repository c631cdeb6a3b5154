"""Measures by name, against scikit-learn on a plain module's predictions."""

import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss, mean_squared_error, r2_score, roc_auc_score

from helpers import make_bank
from wri.errors import InputError
from wri.measures import MEASURES, applicable_measures, check_measure
from wri.stacked import LOGISTIC, SQUARED
from wri.training import Bank, ModelSpec, Run, train_stack
from wri.training.evaluation import auroc

TRAIN = [np.arange(0, 60), np.arange(60, 120)]
SPLITS = {
    "first": np.arange(120, 150),
    "second": np.arange(150, 200),
    "again": np.r_[130:160, 140:150, 140:145],  # rows of both, some more than once
}


def trained(bank, preset, seeds=(0, 1)):
    """Records of runs on two splits of the rows, all measures at the last step."""
    runs = []
    for seed in seeds:
        rows = TRAIN if seed % 2 else [np.arange(5, 60), np.arange(60, 120)]
        spec = ModelSpec.of("erm", preset=preset, steps=30, precision="double")
        runs.append(Run(spec, bank, rows, seed=seed, evaluate=SPLITS))
    return runs, train_stack(runs, checkpoint_every=30, measures="all")


def outputs_of(run, record, rows):
    x = torch.as_tensor(run.view(rows)[0])[None]
    return record.network.outputs(torch.as_tensor(record.parameters)[None], x)[0].numpy()


@pytest.mark.parametrize("preset", ["domainbed", "table"])
@pytest.mark.parametrize("weighted", [False, True])
def test_regression_is_measured_in_the_targets_unit(preset, weighted):
    plain = make_bank(SQUARED)
    weights = np.random.default_rng(3).gamma(1.0, size=200) if weighted else None
    bank = Bank(plain.features, 50 + 7 * plain.targets, loss=SQUARED, weights=weights)
    runs, records = trained(bank, preset)
    for run, record in zip(runs, records, strict=True):
        assert set(record.measures) == {"squared_error", "r2"}
        for split, rows in SPLITS.items():
            prediction = run.units.target.undo(outputs_of(run, record, rows))[:, 0]
            own = None if weights is None else weights[rows]
            expected = {
                "squared_error": mean_squared_error(
                    bank.targets[rows], prediction, sample_weight=own
                ),
                "r2": r2_score(bank.targets[rows], prediction, sample_weight=own),
            }
            for measure, value in expected.items():
                assert record.measures[measure][split][-1] == pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize("loss", ["logistic", "cross_entropy"])
@pytest.mark.parametrize("preset", ["domainbed", "table"])
def test_two_classes_have_an_auroc(preset, loss):
    bank = make_bank(LOGISTIC)
    if loss == "cross_entropy":
        bank = Bank(bank.features, bank.targets)
    runs, records = trained(bank, preset)
    for run, record in zip(runs, records, strict=True):
        assert set(record.measures) == {"accuracy", "loss", "auroc"}
        for split, rows in SPLITS.items():
            outputs = outputs_of(run, record, rows)
            logit = outputs[:, -1] - (outputs[:, 0] if outputs.shape[1] == 2 else 0)
            y = bank.targets[rows]
            expected = {
                "accuracy": np.mean((logit > 0) == y),
                "loss": log_loss(y, 1 / (1 + np.exp(-logit))),
                "auroc": roc_auc_score(y, logit),
            }
            for measure, value in expected.items():
                assert record.measures[measure][split][-1] == pytest.approx(value, rel=1e-9)


def test_auroc_counts_ties_half_and_weights_as_counts():
    random = torch.Generator().manual_seed(0)
    scores = torch.randn(3, 60, generator=random).round(decimals=1)  # many ties
    positive = torch.randint(0, 2, (3, 60), generator=random)
    weights = torch.rand(3, 60, generator=random)
    for counts in (torch.ones(3, 60), weights):
        found = auroc(scores, positive, counts)
        for run in range(3):
            expected = roc_auc_score(positive[run], scores[run], sample_weight=counts[run])
            assert found[run].item() == pytest.approx(expected, rel=1e-6)


def test_a_split_of_one_class_has_no_auroc():
    found = auroc(torch.randn(2, 2), torch.tensor([[1, 1], [0, 1]]), torch.ones(2, 2))
    assert found.isnan().tolist() == [True, False]


def test_which_measures_there_are():
    assert applicable_measures(None) == ("squared_error", "r2")
    assert applicable_measures(2) == ("accuracy", "loss", "auroc")
    assert applicable_measures(3) == ("accuracy", "loss")
    better = {name for name, measure in MEASURES.items() if measure.higher_is_better}
    assert better == {"accuracy", "auroc", "r2"}
    with pytest.raises(InputError, match="r2 was not recorded; there is accuracy, loss"):
        check_measure("r2", ["accuracy", "loss"])
