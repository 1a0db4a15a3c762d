import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.linear_model import LogisticRegression

from kernelcrf.datasets import make_sequences
from kernelcrf.graphs.structure import EDGE, NODE, Chains
from kernelcrf.inference.enumerate import enumerate_labelings, factors


def test_the_same_seed_gives_the_same_data():
    one, two = make_sequences(random_state=3), make_sequences(random_state=3)
    for name in ("X", "y", "posterior"):
        np.testing.assert_array_equal(np.concatenate(getattr(one, name)), np.concatenate(getattr(two, name)))
    assert one.bayes_error == two.bayes_error
    assert not np.array_equal(one.X[0], make_sequences(random_state=4).X[0])


@pytest.mark.parametrize("n_features", [1, 2, 5])
@pytest.mark.parametrize("nonlinear", [True, False])
def test_the_posterior_is_that_of_the_law_by_enumeration(n_features, nonlinear):
    data = make_sequences(6, 4, n_features=n_features, nonlinear=nonlinear, random_state=0)
    if n_features == 1:
        centres = np.linspace(1 / 3 if nonlinear else -1, 1, 3)[:, None]
    else:
        angles = np.arange(3) * np.pi / 3 * (1 if nonlinear else 2)
        centres = np.zeros((3, n_features))
        centres[:, 0], centres[:, 1] = np.cos(angles), np.sin(angles)
    signs = [1, -1] if nonlinear else [1]
    for X, posterior in zip(data.X, data.posterior, strict=True):
        chains = Chains.from_lengths([len(X)])
        density = np.column_stack(
            [np.mean([multivariate_normal(s * c, 0.09).pdf(X).reshape(-1) for s in signs], axis=0) for c in centres]
        )
        tables = {NODE: np.log(density), EDGE: np.log(data.transitions)}
        truth = enumerate_labelings(len(X), 3, factors(chains, 0, tables))
        marginals = [[truth.probabilities[truth.labelings[:, t] == j].sum() for j in range(3)] for t in range(len(X))]
        np.testing.assert_allclose(posterior, marginals, atol=1e-10)


def test_labels_follow_the_chain_and_lengths_their_mean():
    data = make_sequences(4000, 12, n_classes=4, stickiness=0.6, random_state=1)
    counts = np.zeros((4, 4))
    for y in data.y:
        np.add.at(counts, (y[:-1], y[1:]), 1)
    np.testing.assert_allclose(np.diag(data.transitions), 0.6)
    np.testing.assert_allclose(data.transitions.sum(axis=1), 1)
    np.testing.assert_allclose(counts / counts.sum(axis=1, keepdims=True), data.transitions, atol=0.02)
    assert np.mean([len(y) for y in data.y]) == pytest.approx(12, abs=0.3)
    np.testing.assert_allclose(np.bincount([y[0] for y in data.y]) / 4000, 0.25, atol=0.03)


@pytest.mark.parametrize("noise", [0.2, 0.4])
def test_the_bayes_error_is_the_error_of_the_posterior_decoder(noise):
    data = make_sequences(3000, noise=noise, random_state=2)
    y, posterior = np.concatenate(data.y), np.concatenate(data.posterior)
    error = np.mean(posterior.argmax(axis=1) != y)
    assert error == pytest.approx(data.bayes_error, abs=4 * np.sqrt(data.bayes_error / len(y)))
    assert 0 < data.bayes_error < np.mean(y != np.bincount(y).argmax()) / 2


def test_no_linear_rule_works_where_the_data_are_nonlinear():
    for nonlinear, low, high in [(True, 0.3, 0.45), (False, 0.85, 1.0)]:
        data = make_sequences(1000, nonlinear=nonlinear, random_state=0)
        X, y = np.concatenate(data.X), np.concatenate(data.y)
        assert low < LogisticRegression().fit(X, y).score(X, y) < high


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_sequences", 0),
        ("n_classes", 1),
        ("n_features", 0),
        ("mean_length", 0.5),
        ("noise", 0.0),
        ("stickiness", 1.0),
    ],
)
def test_a_parameter_out_of_range_is_named(name, value):
    with pytest.raises(ValueError, match=rf"{name}={value}: expected"):
        make_sequences(**{name: value})
