"""Missing and ambiguous labels make the objective non-convex: such fits are stationary, and start off the saddle."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from golden_models import FOLDER
from kernelcrf import (
    ChainCRF,
    GraphCRF,
    KernelClassifier,
    MarkovNetwork,
    ModelFileError,
    MultiLabelCRF,
    SegmentCRF,
    load,
)
from kernelcrf.datasets import make_sequences
from kernelcrf.solvers import SOLVERS
from model_files import rewritten


@pytest.fixture(scope="module")
def data():
    return make_sequences(20, random_state=0)


def ambiguous(y):
    """Labels 0 and 1 are never told apart."""
    return [[{0, 1} if label < 2 else int(label) for label in labels] for labels in y]


def missing(y):
    return [[None if t % 3 == 1 else int(label) for t, label in enumerate(labels)] for labels in y]


def graphs(X):
    return [(x, np.column_stack((np.arange(len(x) - 1), np.arange(1, len(x))))) for x in X]


def rows(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 2))
    Y = np.column_stack((X[:, 0] > 0, X[:, 1] > 0, X.sum(axis=1) > 0)).astype(int)
    Y[rng.random(Y.shape) < 0.3] = -1
    return X, Y


def table():
    rng = np.random.default_rng(0)
    Z = rng.integers(0, 3, size=(80, 3)).astype(object)
    Z[:, 1] = Z[:, 0]
    Z[rng.random(Z.shape) < 0.3] = None
    return Z


FITS = {
    "ChainCRF": lambda data, seed: ChainCRF(n_components=20, random_state=seed, C=1.0).fit(data.X, missing(data.y)),
    "ChainCRF with sets": lambda data, seed: ChainCRF(random_state=seed, n_components=20, C=1.0).fit(
        data.X, ambiguous(data.y)
    ),
    "ChainCRF auto": lambda data, seed: ChainCRF(n_components="auto", tol=1e-2, random_state=seed, C=1.0).fit(
        data.X, missing(data.y)
    ),
    "GraphCRF": lambda data, seed: GraphCRF(n_components=20, random_state=seed).fit(graphs(data.X), missing(data.y)),
    "GraphCRF loopy": lambda data, seed: GraphCRF(n_components=20, inference="loopy", random_state=seed).fit(
        graphs(data.X), missing(data.y)
    ),
    "MultiLabelCRF": lambda data, seed: MultiLabelCRF("linear", random_state=seed).fit(*rows()),
    "MarkovNetwork": lambda data, seed: MarkovNetwork(random_state=seed).fit(table()),
}


@pytest.mark.parametrize("name", FITS)
def test_a_fit_with_missing_labels_is_stationary_and_repeats_with_its_seed(data, name, tmp_path):
    model, again = FITS[name](data, 3), FITS[name](data, 3)
    certificate = model.certificate_
    assert (certificate.status, certificate.lower_bound, certificate.gap_full) == ("stationary", -np.inf, None)
    assert not certificate.is_certified
    assert again.certificate_ == certificate
    model.save(tmp_path / "model")
    assert load(tmp_path / "model").certificate_ == certificate


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("solver", sorted(set(SOLVERS) - {"dual"}))
def test_labels_that_the_data_treat_alike_are_told_apart(data, solver, seed):
    """From zero, no descent separates them: it ends at a saddle with the objective 25.0."""
    model = ChainCRF(C=10.0, n_components=20, solver=solver, random_state=seed).fit(data.X, ambiguous(data.y))
    assert model.certificate_.status == "stationary"
    assert model.certificate_.objective < 22.0
    assert np.abs(model.coef_[:, 0] - model.coef_[:, 1]).max() > 1.0


def test_a_fit_in_which_every_label_is_ambiguous_does_not_stay_at_zero():
    """Inputs 1 and -1 both have the labels a or b, never c: the gradient at zero vanishes, but zero is a saddle."""
    X, y = [np.array([[1.0]]), np.array([[-1.0]])] * 10, [[{"a", "b"}]] * 20
    for seed in range(3):
        crf = ChainCRF("linear", C=10.0, classes=["a", "b", "c"], fit_intercept=False, random_state=seed)
        model = crf.fit(X, y)
        assert model.certificate_.objective < 0.5 * 20 * np.log(3 / 2)
        assert model.coef_[0, 0] * model.coef_[0, 1] < -1.0


def test_a_fit_with_all_labels_has_the_bits_of_any_seed(data):
    fits = [ChainCRF("linear", random_state=seed, solver="lbfgs", C=1.0).fit(data.X, data.y) for seed in (0, 1)]
    assert fits[0].certificate_.status == "optimal"
    np.testing.assert_array_equal(fits[0].coef_, fits[1].coef_)


def test_a_fit_that_ends_stationary_does_not_warn_and_one_that_falls_short_does(data):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ChainCRF(n_components=20, random_state=0, C=1.0).fit(data.X, missing(data.y))
    with pytest.warns(match=r"status 'max_iter' at a relative size of the gradient of .*, above tol=0.0001"):
        model = ChainCRF(n_components=20, random_state=0, max_iter=2, C=1.0).fit(data.X, missing(data.y))
    assert model.certificate_.status == "max_iter"


def test_a_file_that_calls_a_fit_with_missing_labels_optimal_is_read_as_stationary_if_it_is_old(data, tmp_path):
    """Files of earlier versions do; no file of this version is optimal without a lower bound."""
    path = tmp_path / "model"

    def without_bound(config):
        return config | {"certificate": config["certificate"] | {"status": "optimal", "lower_bound": -np.inf}}

    path.write_bytes((FOLDER / "v2" / "rbf.kcrf").read_bytes())
    rewritten(path, without_bound)
    assert load(path).certificate_.status == "stationary"
    ChainCRF(n_components=20, random_state=0, C=1.0).fit(data.X, missing(data.y)).save(path)
    assert load(path).certificate_.status == "stationary"
    rewritten(path, without_bound)
    with pytest.raises(ModelFileError, match="optimal without a lower bound"):
        load(path)


def test_the_first_point_has_no_weights_that_no_score_shows():
    """Weights outside of the range of the label kernel would raise the objective above that of the model."""
    data = make_sequences(8, random_state=0)
    y = [[None, *labels[1:].tolist()] for labels in data.y]
    crf = ChainCRF("linear", label_kernel="centred", C=3.0, max_iter=1, fit_intercept=False, random_state=0)
    with pytest.warns(ConvergenceWarning):
        crf.fit(data.X, y)
    assert crf.coef_.any()
    penalty = (np.square(crf.coef_).sum() + np.square(crf.transitions_).sum()) / (2 * 3.0)
    np.testing.assert_allclose(crf.certificate_.objective, penalty - crf.log_prob(data.X, y).sum(), rtol=1e-10)


def test_minus_one_is_missing_beside_booleans_of_numpy():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(3, 1)) for _ in range(6)]
    y = [[one if k < 2 else -1 for k, one in enumerate(rng.random(3) > 0.5)] for _ in X]
    assert ChainCRF("linear").fit(X, y).classes_.tolist() == [False, True]


def test_all_estimators_and_metrics_read_minus_one_by_one_rule():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(4, 1)) for _ in range(12)]

    def classes_of(labels, **options):
        y = [rng.permutation([*labels, *labels])[:4] if i else [*labels, *labels][:4] for i in range(12)]
        y[1] = [*labels, *labels][-4:]
        found = [
            estimator("linear", C=1.0, **options).fit(X, y).classes_ for estimator in (ChainCRF, SegmentCRF, GraphCRF)
        ]
        found.append(KernelClassifier("linear", **options).fit(np.concatenate(X), np.concatenate(y)).classes_)
        return [own.tolist() for own in found]

    assert classes_of([-1, 1]) == [[-1, 1]] * 4
    assert classes_of([-1, 0, 2]) == [[0, 2]] * 4
    assert classes_of([-2, -1, 1]) == [[-2, -1, 1]] * 4
    assert classes_of([-1, 0, 1], classes=[-1, 0, 1]) == [[-1, 0, 1]] * 4
    with pytest.warns(UserWarning, match="-1 is read as a missing label") as caught:
        assert classes_of([-1, 0, 1]) == [[0, 1]] * 4
    assert len(caught) == 4


def test_rows_without_a_label_are_left_out_of_the_fit_and_of_the_score():
    X, _ = rows()
    y = np.where(X[:, 0] > 0.3, 2, np.where(X[:, 0] < -0.3, 0, -1))
    named = np.array([None if label < 0 else f"class {label}" for label in y], object)
    known, weights = y >= 0, np.arange(1.0, 61.0)
    expected = KernelClassifier(gamma=0.5).fit(X[known], y[known], weights[known])
    for labels in (y, named, np.where(named == None, -1, named)):  # noqa: E711
        model = KernelClassifier(gamma=0.5).fit(X, labels, weights)
        np.testing.assert_array_equal(model.predict_proba(X), expected.predict_proba(X))
        assert model.score(X, labels, weights) == expected.score(X[known], y[known], weights[known])
    with pytest.raises(ValueError, match="sample_weight is 0 for every row with a known label"):
        model.fit(X, labels, ~known * 1.0)
    with pytest.raises(ValueError, match="y has only missing labels"):
        KernelClassifier(classes=[0, 1]).fit(X, np.full(60, -1))


def test_minus_one_is_missing_beside_tags_of_segments():
    """Tags have a B and an I for each type, also if only one of them occurs."""
    X = [np.eye(3)] * 2
    one, other = (
        SegmentCRF("linear", C=1.0, random_state=0).fit(X, [["B-PER", "O", "O"], ["B-PER", "O", y]]) for y in (-1, None)
    )
    asked = X[:1], [["B-PER", "I-PER", -1]]
    assert one.log_prob(*asked) == other.log_prob(*asked)
