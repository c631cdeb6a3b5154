"""Extractors: what their formulas promise, and what all of them owe to the contract."""

import numpy as np
import pytest
import torch

from wri.errors import InputError
from wri.paper.features import CNN, PCA, Autoencoder
from wri.paper.features.networks import scaled

SMALL = [PCA(width=3), Autoencoder(width=3, epochs=1), CNN(width=3, epochs=1)]
IDS = [type(each).__name__ for each in SMALL]


def bars(n, seed=0, shape=(2, 16, 16)):
    """A bright bar at a random place on dim noise; class 1 lies, class 0 stands."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 2, n)
    images = random.integers(0, 40, (n, *shape)).astype(np.uint8)
    for image, label, place in zip(images, labels, random.integers(0, 14, n), strict=True):
        (image if label else image.swapaxes(1, 2))[:, place : place + 3] = 255
    return images, labels


def as_x(images):
    return scaled(images).double().numpy()


def test_pca_projects_on_the_top_eigenvectors_of_the_covariance():
    images, labels = bars(300, shape=(1, 16, 16))
    fitted = PCA(width=5).fit(images, labels)
    x = as_x(images).reshape(300, -1)
    _, singular, vectors = np.linalg.svd(x - x.mean(0), full_matrices=False)
    features = fitted.transform(images)
    assert features.dtype == np.float32
    signs = np.sign((features * ((x - x.mean(0)) @ vectors[:5].T)).sum(0))
    expected = (x - x.mean(0)) @ (vectors[:5].T * signs)
    np.testing.assert_allclose(features, expected, atol=1e-4)
    left_out = (singular[5:] ** 2).sum() / x.size  # the variance that five components miss
    assert fitted.reconstruction_error(images) == pytest.approx(left_out, rel=1e-5)
    back = fitted.reconstruct(images).reshape(300, -1)
    np.testing.assert_allclose(back, x.mean(0) + expected @ (vectors[:5].T * signs).T, atol=1e-4)


def test_every_component_is_positive_where_it_is_largest():
    components = PCA(width=8).fit(*bars(100)).parameters()["components"]  # [pixels, width]
    largest = np.abs(components).argmax(0)
    assert (components[largest, np.arange(8)] > 0).all()
    np.testing.assert_allclose(components.T @ components, np.eye(8), atol=1e-5)


@pytest.mark.slow
def test_the_autoencoder_reconstructs_unseen_images_better_than_their_mean():
    images, labels = bars(512)
    fitted = Autoencoder(width=8, epochs=6).fit(images, labels)
    unseen = bars(200, seed=1)[0]
    mean_image = as_x(images).mean(0)
    error = fitted.reconstruction_error(unseen)
    assert error < 0.5 * np.square(as_x(unseen) - mean_image).mean()
    squares = np.square(as_x(unseen) - fitted.reconstruct(unseen))
    assert error == pytest.approx(squares.mean(), rel=1e-4)


def test_the_encoder_has_the_layers_of_the_paper():
    with torch.device("meta"):
        encoder = Autoencoder(width=64).encoder((2, 28, 28))
    names = [type(layer).__name__ for layer in encoder]
    assert names == ["Conv2d", "ReLU", "Conv2d", "BatchNorm2d", "ReLU", "Flatten", "Linear"]
    shapes = [tuple(encoder[n].weight.shape) for n in (0, 2, 6)]
    assert shapes == [(16, 2, 5, 5), (32, 16, 5, 5), (64, 32 * 20 * 20)]


def test_features_of_the_cnn_separate_unseen_classes():
    images, labels = bars(512)
    fitted = CNN(width=8, epochs=4).fit(images, labels + 7)  # any whole numbers will do
    features, (unseen, truth) = fitted.transform(images), bars(200, seed=1)
    centres = np.stack([features[labels == label].mean(0) for label in (0, 1)])  # [2, width]
    distances = np.square(fitted.transform(unseen)[:, None] - centres).sum(-1)
    assert (distances.argmin(1) == truth).mean() > 0.95


@pytest.mark.parametrize("extractor", SMALL, ids=IDS)
def test_the_same_seed_gives_the_same_features_and_leaves_the_global_generator_alone(extractor):
    images, labels = bars(150)
    before = torch.get_rng_state()
    features = [extractor.fit(images, labels, seed=4).transform(images) for _ in range(2)]
    assert torch.equal(torch.get_rng_state(), before)
    assert np.array_equal(*features)
    assert features[0].shape == (150, 3)
    other = extractor.fit(images, labels, seed=5).transform(images)
    assert np.array_equal(features[0], other) == isinstance(extractor, PCA)


@pytest.mark.parametrize("extractor", SMALL, ids=IDS)
@pytest.mark.slow
def test_the_number_of_threads_does_not_change_the_features(extractor):
    images, labels = bars(74, shape=(2, 28, 28))  # the last batch, of 10, is split differently
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(extractor.fit(images, labels, seed=4).transform(images))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert np.array_equal(*found)


@pytest.mark.parametrize("extractor", SMALL, ids=IDS)
def test_parameters_restore_what_was_fitted(extractor):
    images, labels = bars(150)
    fitted = extractor.fit(images, labels)
    again = extractor.restore(fitted.parameters(), images.shape[1:])
    assert np.array_equal(again.transform(images), fitted.transform(images))
    with pytest.raises((KeyError, ValueError)):
        extractor.restore({"strange": np.zeros(3)}, images.shape[1:])
    with pytest.raises((KeyError, ValueError)):
        type(extractor)(width=4).restore(fitted.parameters(), images.shape[1:])


@pytest.mark.parametrize("extractor", SMALL, ids=IDS)
def test_only_extractors_that_say_so_look_at_labels(extractor):
    images, labels = bars(150)
    one, other = (extractor.fit(images, each).transform(images) for each in (labels, labels[::-1]))
    assert np.array_equal(one, other) != extractor.uses_labels


@pytest.mark.parametrize("extractor", SMALL, ids=IDS)
def test_views_and_read_only_images_are_as_good_as_copies(extractor):
    images, labels = bars(600)
    mirrored = images[..., ::-1]
    images.flags.writeable = False
    fitted = extractor.fit(images, labels)
    assert np.array_equal(fitted.transform(mirrored), fitted.transform(mirrored.copy()))
    np.testing.assert_allclose(fitted.transform(images)[590:], fitted.transform(images[590:]), 1e-4)


@pytest.mark.parametrize("extractor", SMALL, ids=IDS)
def test_progress_counts_up_to_the_end(extractor):
    calls = []
    extractor.fit(*bars(150), progress=lambda done, of: calls.append((done, of)))
    done, of = zip(*calls, strict=True)
    assert list(done) == sorted(done)
    assert set(of) == {done[-1]}


def test_images_of_another_form_are_refused_with_the_remedy():
    images, labels = bars(20)
    for wrong in (images / 255, images[:, 0]):
        with pytest.raises(InputError, match=r"must be uint8 pixels \[N, C, H, W\], not"):
            PCA(width=2).fit(wrong, labels)


def test_more_components_than_images_have_are_refused_with_the_remedy():
    with pytest.raises(InputError, match="at most 19 components; lower width from 20, or give"):
        PCA(width=20).fit(*bars(20))
