"""Adam with a run axis is `torch.optim.Adam` for every run by itself."""

import torch

from wri.stacked import Adam, clip_norm


def test_equals_torch_with_every_runs_own_settings():
    torch.manual_seed(0)
    rates, decays = torch.tensor([0.1, 0.01, 0.3]).double(), torch.tensor([0.0, 0.1, 0.01]).double()
    flat = torch.randn(3, 5, dtype=torch.float64)
    singles = [row.clone().requires_grad_() for row in flat]
    optimizers = [
        torch.optim.Adam([p], lr=float(rate), weight_decay=float(decay))
        for p, rate, decay in zip(singles, rates, decays, strict=True)
    ]
    adam = Adam.initial(flat)
    for step in range(30):
        if step == 11:  # the middle run forgets its past
            adam.reset(torch.tensor([False, True, False]))
            optimizers[1] = torch.optim.Adam([singles[1]], lr=0.01, weight_decay=0.1)
        gradient = torch.randn(3, 5, dtype=torch.float64)
        adam.step(flat, gradient, rates, decays)
        for single, optimizer, row in zip(singles, optimizers, gradient, strict=True):
            single.grad = row.clone()
            optimizer.step()
    torch.testing.assert_close(flat, torch.stack([s.detach() for s in singles]))


def test_single_precision_steps_are_torchs_to_its_last_digits():
    """The bias corrections 1 − 0.999^t are small differences in the first steps."""
    torch.manual_seed(0)
    flat = torch.zeros(1, 200)
    single = torch.zeros(200, requires_grad=True)
    optimizer, adam = torch.optim.Adam([single], lr=1.0), Adam.initial(flat)
    for _ in range(10):
        gradient, before = torch.randn(1, 200), (flat.clone(), single.detach().clone())
        adam.step(flat, gradient, torch.ones(1), torch.zeros(1))
        single.grad = gradient[0].clone()
        optimizer.step()
        ours, theirs = flat - before[0], single.detach() - before[1]
        assert (ours[0] - theirs).abs().max() < 1e-6 * theirs.abs().max()


def test_a_frozen_run_stays_where_it_is():
    flat = torch.ones(2, 3)
    adam = Adam.initial(flat)
    gradient = torch.tensor([[1.0, 2, 3], [torch.nan, 1, 2]])
    adam.step(flat, gradient, torch.ones(2), torch.zeros(2), torch.tensor([True, False]))
    assert (flat[1] == 1).all()
    assert (flat[0] != 1).all()
    assert adam.mean.isfinite().all()


def test_clipping_is_per_run():
    gradient = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0], [30.0, 40.0]])
    clipped = clip_norm(gradient, torch.tensor([1.0, 1.0, 1.0, torch.inf]))
    expected = torch.tensor([[0.6, 0.8], [0.3, 0.4], [0.0, 0.0], [30.0, 40.0]])
    torch.testing.assert_close(clipped, expected)


def test_steps_with_rates_known_ahead_are_the_same_steps():
    torch.manual_seed(0)
    rate, decay = torch.tensor([0.1, 0.01]).double(), torch.tensor([0.0, 0.1]).double()
    one = torch.randn(2, 5, dtype=torch.float64)
    other, gradients = one.clone(), torch.randn(4, 2, 5, dtype=torch.float64)
    adam, ahead = Adam.initial(one), Adam.initial(one)
    for gradient in gradients:
        adam.step(one, gradient, rate, decay)
    for gradient, known in zip(gradients, ahead.next_rates(4, rate), strict=True):
        ahead.move(other, gradient, known, decay)
    torch.testing.assert_close(one, other, rtol=0, atol=0)
    assert ahead.steps.tolist() == [[4.0], [4.0]]
