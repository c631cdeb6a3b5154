"""The mathematics of WRI: what the penalty is, and what it is not."""

from itertools import product

import pytest
import torch

from wri.datasets import Gaussian2D
from wri.errors import InputError
from wri.objectives.functional import pair_weights, vrex_penalty, weighted_gaps, wri_penalty
from wri.objectives.weighted_risks import pair_overlap, penalty_slope

WEIGHTINGS = ["density", "overlap", "ratio"]
EVERY_WEIGHTING = [*WEIGHTINGS, "tilted", "uniform", "published"]
SCALINGS = ["none", "product", "loss", "relative", "risk"]


def with_gradients(losses, logs, *options, **named):
    """The penalty and its gradients in losses and log densities."""
    losses, logs = losses.clone().requires_grad_(), logs.clone().requires_grad_()
    penalty = wri_penalty(losses, logs, *options, **named)
    gradients = torch.autograd.grad(penalty.sum(), [losses, logs], allow_unused=True)
    values = zip(gradients, (losses, logs), strict=True)
    return penalty.detach(), [torch.zeros_like(v) if g is None else g for g, v in values]


def quadrature():
    """The first two environments of Figure 1 on a grid: points, cell, p_e(x), P_e(Y = 1 | x)."""
    setting = Gaussian2D()
    x_inv = torch.linspace(-15, 15, 601, dtype=torch.float64)
    x_spu = torch.linspace(-16, 16, 641, dtype=torch.float64)
    points = torch.cartesian_prod(x_inv, x_spu)
    cell = (x_inv[1] - x_inv[0]) * (x_spu[1] - x_spu[0])
    density = setting.log_joint(points).exp()[:, :2].T  # [E, N]
    probability = setting.probability(points)[:, :2].T
    log_invariant = setting.log_invariant(points)[:, :2].T
    return points, cell, density, probability, log_invariant


def weighted_risks(weighting, predictor):
    """R_12 and R_21 of a predictor of P(Y = 1), integrated."""
    points, cell, density, probability, log_invariant = quadrature()
    logs = log_invariant[:, None].expand(2, 2, -1)  # whose density, whose rows, point
    weights = pair_weights(logs, weighting)  # [j, i, N]
    logit = predictor(points)
    loss_if_one = torch.nn.functional.softplus(-logit)
    loss_if_zero = torch.nn.functional.softplus(logit)
    losses = probability * loss_if_one + (1 - probability) * loss_if_zero  # [i, N]
    risks = (density * weights * losses).sum(-1) * cell  # [j, i]
    return risks[1, 0], risks[0, 1]


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize(
    "predictor",
    [lambda x: 1.7 * x[:, 0], lambda x: (2 * x[:, 0]).sin() - 1, lambda x: 0 * x[:, 0] + 0.3],
    ids=["linear", "sine", "constant"],
)
@pytest.mark.slow
def test_proposition_1_spurious_free_predictors_have_equal_weighted_risks(weighting, predictor):
    first, second = weighted_risks(weighting, predictor)
    assert first > 1e-3
    assert abs(first - second) < 1e-6


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.slow
def test_spurious_predictors_have_not(weighting):
    first, second = weighted_risks(weighting, lambda x: 1.7 * x[:, 0] - 0.5 * x[:, 1])
    assert abs(first - second) > 1e-2


def test_without_weights_the_spurious_free_predictor_looks_spurious():
    """Environment 2 has the harder cases: VREx's complaint is wrong."""
    first, second = weighted_risks("uniform", lambda x: 1.7 * x[:, 0])
    assert abs(first - second) > 0.2


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_weights_make_the_environments_alike(weighting):
    """α_ij p_i = α_ji p_j at every point, for every pair that is compared."""
    torch.manual_seed(0)
    log_p = torch.randn(4, 50, dtype=torch.float64)  # four environments at 50 points
    weights = pair_weights(log_p[:, None].expand(4, 4, -1), weighting)  # [j, i, N]
    product = weights * log_p.exp()  # α_ij p_i at [j, i]
    pairs = [(0, 1), (0, 2), (0, 3)]
    if weighting != "ratio":
        pairs += [(1, 2), (1, 3), (2, 3)]
    for i, j in pairs:
        torch.testing.assert_close(product[j, i], product[i, j])


def random_case(environments=3, rows=20):
    torch.manual_seed(1)
    losses = torch.rand(2, environments, rows, dtype=torch.float64)
    logs = torch.randn(2, environments, environments, rows, dtype=torch.float64)
    return losses, logs


@pytest.mark.parametrize("environments", [2, 3, 6])
def test_constant_densities_make_the_unscaled_penalty_a_multiple_of_vrex(environments):
    losses, logs = random_case(environments)
    k = environments
    variance = vrex_penalty(losses.mean(-1))
    for weighting in ("density", "published", "uniform"):
        penalty = wri_penalty(losses, torch.zeros_like(logs), weighting)
        torch.testing.assert_close(penalty, 2 * k / (k - 1) * variance)


def test_weights_act_on_single_examples_and_the_published_ones_do_not():
    losses, logs = random_case()
    shuffled = logs[..., torch.randperm(logs.shape[-1])]
    for weighting in WEIGHTINGS:
        before, after = (wri_penalty(losses, d, weighting) for d in (logs, shuffled))
        assert (before - after).abs().min() > 1e-6
    before, after = (wri_penalty(losses, d, "published") for d in (logs, shuffled))
    torch.testing.assert_close(before, after)


@pytest.mark.parametrize("weighting", ["density", "published"])
@pytest.mark.parametrize("scaling", ["none", "product", "loss", "relative"])
def test_penalty_by_hand(weighting, scaling):
    """Two environments of two examples, written out."""
    losses = torch.tensor([[1.0, 3.0], [2.0, 4.0]], dtype=torch.float64)
    d1_at_2, d2_at_1 = torch.tensor([0.5, 1.0]).double(), torch.tensor([2.0, 4.0]).double()
    densities = torch.ones(2, 2, 2, dtype=torch.float64)
    densities[0, 1], densities[1, 0] = d1_at_2, d2_at_1
    r_12 = (2.0 * 1 + 4.0 * 3) / 2 if weighting == "density" else 3.0 * 2.0
    r_21 = (0.5 * 2 + 1.0 * 4) / 2 if weighting == "density" else 0.75 * 3.0
    gap, loss, density = r_12 - r_21, 2.5, (3.0 + 0.75) / 2
    expected = {
        "none": gap**2,
        "product": gap**2 / (density * loss),
        "loss": (gap / loss) ** 2,
        "relative": (gap / (density * loss)) ** 2,
    }[scaling]
    penalty = wri_penalty(losses, densities.log(), weighting, scaling)
    assert penalty.item() == pytest.approx(expected)


def test_relative_scaling_does_not_know_the_densities_unit():
    losses, logs = random_case()
    before = wri_penalty(losses, logs, "density", "relative")
    torch.testing.assert_close(wri_penalty(losses, logs - 500, "density", "relative"), before)


def test_padding_counts_for_nothing():
    losses, logs = random_case(rows=8)
    weight = torch.full((2, 3, 8), 1 / 8, dtype=torch.float64)
    weight[:, 1] = torch.tensor([1 / 5] * 5 + [0.0] * 3)
    padded = wri_penalty(losses, logs, row_weight=weight)
    losses[:, 1, 5:] = 1e9
    logs[:, :, 1, 5:] = 3.0
    torch.testing.assert_close(wri_penalty(losses, logs, row_weight=weight), padded)
    gap = weighted_gaps(losses, logs, row_weight=weight).gap[:, 1, 0]  # R_01 − R_10
    first = (logs[:, 1, 0].exp() * losses[:, 0]).mean(-1)
    second = (logs[:, 0, 1, :5].exp() * losses[:, 1, :5]).mean(-1)
    torch.testing.assert_close(gap, first - second)


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("weighting", EVERY_WEIGHTING)
def test_padding_counts_for_nothing_however_large_the_densities_are_there(weighting, scaling):
    """The penalty and its gradients are those of the rows without padding, in single precision."""
    losses, logs = (values[0].float() for values in random_case(rows=8))
    weight = torch.tensor([1 / 5] * 5 + [0.0] * 3).expand(3, 8)
    for normalised, form in product((False, True), ("square", "halves")):
        options = {"normalised": normalised, "form": form}
        expected, (by_loss, by_log) = with_gradients(
            losses[:, :5], logs[..., :5], weighting, scaling, **options
        )
        for extreme in (-1e4, 1e4, 3e38):
            logs[..., 5:] = extreme
            logs[1, :, 5:] = -extreme
            penalty, gradients = with_gradients(
                losses, logs, weighting, scaling, row_weight=weight, **options
            )
            torch.testing.assert_close(penalty, expected)
            torch.testing.assert_close(gradients[0][:, :5], by_loss)
            torch.testing.assert_close(gradients[1][..., :5], by_log)
            assert all((gradient[..., 5:] == 0).all() for gradient in gradients)


@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("weighting", ["density", "overlap", "tilted", "ratio", "published"])
def test_without_overlap_there_is_no_penalty(weighting, scaling, normalised):
    """Disjoint supports: every environment's density is zero at the others' rows."""
    losses, logs = (values[0].float() + 3 for values in random_case())
    logs = torch.where(torch.eye(3, dtype=torch.bool)[..., None], logs, -torch.inf)
    penalty, gradients = with_gradients(losses, logs, weighting, scaling, normalised=normalised)
    assert penalty == 0
    assert all((gradient == 0).all() for gradient in gradients)


@pytest.mark.parametrize("shift", [-1000.0, -100.0, 100.0, 1000.0])
@pytest.mark.parametrize("form", ["square", "halves"])
@pytest.mark.parametrize(
    ("scaling", "normalised"),
    [("relative", False), ("risk", False), *((scaling, True) for scaling in SCALINGS)],
)
@pytest.mark.parametrize("weighting", ["density", "published"])
def test_what_is_free_of_the_densities_unit_is_so_in_single_precision(
    weighting, scaling, normalised, form, shift
):
    losses, logs = (values.float() for values in random_case())
    options, named = (weighting, scaling), {"normalised": normalised, "form": form}
    expected, before = with_gradients(losses, logs, *options, **named)
    penalty, after = with_gradients(losses, logs + shift, *options, **named)
    torch.testing.assert_close(penalty, expected, rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(after, before, rtol=1e-2, atol=1e-5)
    assert (expected.abs() > 1e-6).all()


def test_ratios_are_compared_with_the_reference_alone():
    """Two environments that are no reference may lie as far apart as they like."""
    losses, logs = (values[0].float() for values in random_case())
    near, before = with_gradients(losses, logs, "ratio")
    logs[1, 2] += 1000
    far, after = with_gradients(losses, logs, "ratio")
    assert near == far
    torch.testing.assert_close(after, before, rtol=0, atol=0)


def test_bad_calls_name_what_is_wrong():
    losses, logs = random_case()
    with pytest.raises(InputError, match="weighting must be one of density, overlap"):
        wri_penalty(losses, logs, "densities")
    with pytest.raises(InputError, match="scaling must be one of none, product"):
        wri_penalty(losses, logs, scaling="half")
    with pytest.raises(InputError, match=r"need log_densities of shape \[..., E, E, B\]"):
        wri_penalty(losses, logs[..., :1])
    with pytest.raises(InputError, match="one environment; at least two"):
        wri_penalty(losses[:, :1], logs[:, :1, :1])


def random_batch(batch=40, environments=3, seed=0):
    torch.manual_seed(seed)
    losses = torch.rand(environments, batch, dtype=torch.float64)
    logs = torch.randn(environments, environments, batch, dtype=torch.float64)
    return losses, logs


def test_tilted_weights_split_the_overlap_gap_in_two():
    """o·(1 − o) + o² = o: the two tilted gaps of a pair add up to the overlap gap."""
    losses, logs = random_batch()
    tilted = weighted_gaps(losses, logs, "tilted").gap
    overlap = weighted_gaps(losses, logs, "overlap").gap
    torch.testing.assert_close(tilted - tilted.T, overlap)


def test_tilted_gaps_by_hand():
    losses = torch.tensor([[1.0, 2.0], [3.0, 5.0]])
    ratio = torch.tensor([[1.0, 3.0], [1.0, 1.0]]).log()  # d_2/d_1 at 1's rows, d_1/d_2 at 2's
    logs = torch.stack(
        [torch.stack([torch.zeros(2), ratio[1]]), torch.stack([ratio[0], torch.zeros(2)])]
    )
    gap = weighted_gaps(losses, logs, "tilted").gap  # o = ½, ¾ on 1's rows and ½, ½ on 2's
    towards_first = (1 / 4 * 1 + 3 / 16 * 2) / 2 - (1 / 4 * 3 + 1 / 4 * 5) / 2
    towards_second = (1 / 4 * 3 + 1 / 4 * 5) / 2 - (1 / 4 * 1 + 9 / 16 * 2) / 2
    assert gap[1, 0].item() == pytest.approx(towards_first)
    assert gap[0, 1].item() == pytest.approx(towards_second)


@pytest.mark.parametrize("weighting", ["density", "overlap", "tilted"])
def test_normalised_risks_of_equal_losses_agree_whatever_the_weights(weighting):
    _, logs = random_batch()
    losses = torch.full((3, 40), 0.7, dtype=torch.float64)
    penalty = wri_penalty(losses, logs, weighting, normalised=True)
    assert penalty.item() == pytest.approx(0.0, abs=1e-20)
    assert wri_penalty(losses, logs, weighting).item() > 1e-4


def test_risk_scaling_compares_the_gap_with_the_weighted_risks():
    losses = torch.tensor([[1.0, 2.0], [4.0, 4.0]])
    penalty = wri_penalty(losses, torch.zeros(2, 2, 2), "uniform", "risk")
    assert penalty.item() == pytest.approx(((1.5 - 4) / 2.75) ** 2)


def test_the_product_of_half_batches_has_no_bias():
    """With equal risks a batch's squared gap is its variance; the product's mean is zero."""
    torch.manual_seed(0)
    losses = torch.rand(4000, 2, 16, dtype=torch.float64)
    logs = torch.zeros(4000, 2, 2, 16, dtype=torch.float64)
    square = wri_penalty(losses, logs, "uniform")
    halves = wri_penalty(losses, logs, "uniform", form="halves")
    assert square.mean().item() == pytest.approx(2 / 12 / 16, rel=0.1)
    assert abs(halves.mean()) < 4 * halves.std() / 4000**0.5 < 2e-3


def test_half_batches_weigh_their_rows_anew():
    losses, logs = random_batch()
    weight = torch.zeros(3, 40, dtype=torch.float64)
    weight[:, :20] = 1 / 20  # the rest is padding
    padded = wri_penalty(losses, logs, "overlap", row_weight=weight, form="halves")
    short = wri_penalty(losses[:, :20], logs[..., :20], "overlap", form="halves")
    torch.testing.assert_close(padded, short)


@pytest.mark.parametrize("weighting", ["density", "overlap", "tilted"])
def test_normalised_risks_do_not_underflow(weighting):
    """Environments far apart: weights are tiny, their normalised risks are not."""
    losses = torch.rand(2, 50)
    logs = torch.zeros(2, 2, 50)
    logs[1, 0], logs[0, 1] = -60 - 100 * torch.rand(50), -150 - 100 * torch.rand(50)
    gaps = weighted_gaps(losses, logs, weighting, normalised=True)
    double = weighted_gaps(losses.double(), logs.double(), weighting, normalised=True)
    torch.testing.assert_close(gaps.gap.double(), double.gap, atol=1e-4, rtol=1e-4)
    assert gaps.mean_risk[1, 0] > 0.01


@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
@pytest.mark.parametrize("weighting", [w for w in EVERY_WEIGHTING if w != "uniform"])
@pytest.mark.parametrize(
    ("scaling", "shift"),
    [*product(SCALINGS, [0.0]), ("relative", -2000.0), ("risk", -2000.0)],  # in any unit
)
def test_the_slope_is_the_penaltys_gradient(weighting, scaling, shift, padded):
    torch.manual_seed(0)
    losses = torch.rand(4, 3, 7, dtype=torch.float64) + 0.1
    logs = torch.randn(4, 3, 3, 7, dtype=torch.float64) + shift
    weight = None
    if padded:
        weight = torch.rand(4, 3, 7, dtype=torch.float64)
        weight[0, 1, 5:] = 0
        weight /= weight.sum(-1, keepdim=True)
    factor = torch.rand(4, 1, 1, dtype=torch.float64)
    moving = logs.clone().requires_grad_()
    penalty = wri_penalty(losses, moving, weighting, scaling, weight)
    (expected,) = torch.autograd.grad((factor[:, 0, 0] * penalty).sum(), moving)
    with torch.no_grad():
        slope = penalty_slope(losses, logs, weighting, scaling, weight, factor)
    torch.testing.assert_close(slope, expected, rtol=1e-10, atol=1e-14)


def test_the_slope_is_zero_where_nothing_is_lost():
    logs = torch.randn(1, 2, 2, 5, dtype=torch.float64)
    factor = torch.ones(1, 1, 1, dtype=torch.float64)
    slope = penalty_slope(torch.zeros_like(logs[:, 0]), logs, "density", "relative", None, factor)
    assert (slope == 0).all()


def test_overlap_is_one_for_equal_densities_and_zero_for_disjoint_ones():
    """And by hand in between: densities 1 and 3 at a row of one, 3 and 1 at one of the other."""
    equal = torch.randn(2, 1, 1, 5).expand(2, 3, 3, 5)
    torch.testing.assert_close(pair_overlap(equal), torch.ones(2, 3, 3))
    logs = torch.tensor([[[0.0], [-200.0]], [[-200.0], [0.0]]])
    assert pair_overlap(logs)[0, 1] < 1e-30
    between = torch.tensor([[[3.0], [1.0]], [[1.0], [3.0]]]).log()  # whose density, whose row
    assert pair_overlap(between)[0, 1] == pytest.approx(0.25 + 0.25)
    rows = torch.cat([between, torch.full_like(between, torch.nan)], -1)
    padding = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    torch.testing.assert_close(pair_overlap(rows, padding), pair_overlap(between))


@pytest.mark.parametrize("form", ["square", "halves"])
def test_pairs_count_by_a_power_of_their_overlap(form):
    torch.manual_seed(0)
    losses, logs = torch.rand(2, 8), torch.randn(2, 2, 8) + 2 * torch.eye(2)[:, :, None]
    given = {"weighting": "overlap", "scaling": "product", "normalised": True, "form": form}
    plain = wri_penalty(losses, logs, **given)
    overlap = pair_overlap(logs)[0, 1]
    assert overlap < 0.9
    for power in (0.0, 1.0, 2.0):
        discounted = wri_penalty(losses, logs, **given, overlap_power=power)
        torch.testing.assert_close(discounted, plain * overlap**power)


def test_the_penalty_of_a_pair_goes_to_zero_with_its_overlap():
    """Normalised risks alone have a gap that is as large as ever."""
    torch.manual_seed(0)
    losses, base = torch.rand(2, 50), 3 * torch.randn(2, 2, 50)
    given = {"weighting": "overlap", "scaling": "product", "normalised": True}
    apart = [base + distance * torch.eye(2)[:, :, None] for distance in (5.0, 15.0, 25.0)]
    plain = [float(wri_penalty(losses, logs, **given)) for logs in apart]
    discounted = [float(wri_penalty(losses, logs, **given, overlap_power=2.0)) for logs in apart]
    assert plain[2] > plain[0]
    assert discounted[0] > 1e4 * discounted[1] > 1e8 * discounted[2] > 0
