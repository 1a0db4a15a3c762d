"""The parameter `weights`: weights of observed pairs in fits, answers, files and clusters."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.feature_extraction import DictVectorizer

import kernelcrf
from kernelcrf import ChainCRF
from kernelcrf.fitting import held_out
from kernelcrf.penalties import ElasticNet
from kernelcrf.persistence import ModelFileError
from model_files import rewritten

RNG = np.random.default_rng(0)
X = [
    [{"word": f"w{RNG.integers(20)}", "shape": f"s{RNG.integers(4)}", "bias": 1.0} for _ in range(T)]
    for T in RNG.integers(1, 8, size=25)
]
Y = [[("a", "b", "c", "d")[RNG.choice(4, p=(0.5, 0.3, 0.15, 0.05))] for _ in x] for x in X]
OBSERVED = {
    (name, label) for x, y in zip(X, Y, strict=True) for t, label in zip(x, y, strict=True) for name in t.items()
}
STEPS = {pair for y in Y for pair in itertools.pairwise(y)}


def fit(X=X, y=Y, *, C=1.0, tol=1e-8, **parameters):
    return ChainCRF("linear", C=C, tol=tol, **parameters).fit(X, y)


@pytest.mark.parametrize("solver", ["dual", "lbfgs", "newton-cg"])
@pytest.mark.parametrize("transitions", [False, True])
def test_only_observed_pairs_have_weights(solver, transitions):
    crf = fit(solver=solver, weights="observed" if transitions else ("observed", "observed"))
    assert crf.certificate_.status == "optimal"
    names = crf.get_feature_names_out()
    found = {(names[f], crf.classes_[j]) for f, j in np.argwhere(crf.coef_)}
    assert found == {(f"{key}:{value}" if key != "bias" else "bias", label) for (key, value), label in OBSERVED}
    steps = {(crf.classes_[i], crf.classes_[j]) for i, j in np.argwhere(crf.transitions_)}
    assert steps == STEPS if not transitions else steps >= STEPS
    assert crf.model_.layout.size == len(found) + (16 if transitions else len(STEPS))


def test_the_optimum_is_that_of_features_made_of_observed_pairs():
    """The gradient of the whole problem, restricted to observed pairs, is zero at the optimum."""
    every = fit(weights="all", tol=1e-12)
    some = fit(tol=1e-12)
    flags = some.model_.layout.terms[0].pairs.flags
    assert some.certificate_.objective > every.certificate_.objective
    tokens = np.concatenate(some.predict_proba(X))
    own = (np.concatenate(Y)[:, None] == some.classes_).astype(float)
    F = some.model_.reader.read(X)[0]
    gradient = F.T @ (tokens - own) + some.coef_
    assert np.abs(gradient[flags]).max() < 1e-4
    assert np.abs(gradient[~flags]).max() > 0.1


def test_dense_inputs_and_other_kernels_have_all_pairs():
    arrays = [RNG.normal(size=(len(y), 2)) * (RNG.random((len(y), 2)) < 0.3) for y in Y]
    assert fit(arrays).model_.layout.terms[0].pairs is None
    sparse = [sp.csr_array(x) for x in arrays]
    assert fit(sparse).model_.layout.terms[0].pairs is not None
    assert ChainCRF("rbf", C=1.0, n_components=5).fit(sparse, Y).model_.layout.terms[0].pairs is None
    assert fit(sparse, label_kernel="centred").model_.layout.terms[0].pairs is None


def test_a_label_that_may_be_there_counts_as_observed():
    y = [[None if t == 0 else label for t, label in enumerate(labels)] for labels in Y]
    crf = fit(y=y, random_state=0, tol=1e-4)
    flags = crf.model_.layout.terms[0].pairs.flags
    F = crf.model_.reader.read(X)[0]
    starts = np.cumsum([0, *map(len, X[:-1])])
    assert flags[np.unique(F[starts].indices)].all()


@pytest.mark.parametrize("posterior", ["exact", "sampled"])
def test_posteriors_cover_the_weights_of_observed_pairs(posterior, monkeypatch):
    if posterior == "sampled":
        monkeypatch.setattr("kernelcrf.fitting.laplace.MOST_EXACT", 10)
    crf = fit(laplace=True)
    assert np.isfinite(crf.log_marginal_likelihood())
    averaged = crf.predict_proba(X[:3], posterior="laplace")
    for p, q in zip(averaged, crf.predict_proba(X[:3]), strict=True):
        np.testing.assert_allclose(p.sum(axis=1), 1)
        assert np.abs(p - q).max() < 0.3
    assert len(crf.select_for_labelling(X, 3, "information", random_state=0)) == 3


def test_evidence_chooses_C():
    crf = fit(C="evidence")
    assert crf.C_ > 0
    assert crf.model_.layout.terms[0].pairs is not None


@pytest.mark.parametrize("l1", [0.0, 4.0])
def test_a_warm_start_has_the_pairs_of_its_own_data(l1, tmp_path):
    """A file has no weights that are zero, and the earlier data may have fewer pairs: neither changes the optimum."""
    vectoriser = DictVectorizer().fit([token for x in X for token in x])
    rows = [vectoriser.transform(x) for x in X]
    cold = ChainCRF("linear", C=2.0, tol=1e-8).fit(rows, Y)
    crf = ChainCRF("linear", C=1.0, penalty=ElasticNet(l1), warm_start=True).fit(rows[:20], Y[:20])
    crf.save(tmp_path / "model.kcrf")
    for warm in (crf, kernelcrf.load(tmp_path / "model.kcrf")):
        warm.set_params(C=2.0, penalty=ElasticNet(0.0), tol=1e-8).fit(rows, Y)
        assert warm.model_.layout.size == cold.model_.layout.size
        assert warm.certificate_.objective == pytest.approx(cold.certificate_.objective, rel=1e-7)


def test_a_model_file_has_one_weight_per_pair(tmp_path):
    crf = fit(weights=("observed", "observed"))
    crf.save(tmp_path / "model")
    loaded = kernelcrf.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.coef_, crf.coef_)
    np.testing.assert_array_equal(loaded.transitions_, crf.transitions_)
    for p, q in zip(loaded.predict_proba(X), crf.predict_proba(X), strict=True):
        np.testing.assert_array_equal(p, q)


def test_zero_weights_are_not_stored(tmp_path):
    crf = fit(C=10.0, penalty=ElasticNet(1.0))
    crf.save(tmp_path / "model")
    loaded = kernelcrf.load(tmp_path / "model")
    zeros = (crf.coef_[crf.model_.layout.terms[0].pairs.flags] == 0).sum()
    assert zeros > 10
    assert loaded.model_.layout.size == crf.model_.layout.size - zeros
    np.testing.assert_array_equal(loaded.coef_, crf.coef_)
    assert loaded.model_.layout.terms[0].n == len(loaded.coef_)
    for p, q in zip(loaded.predict_proba(X), crf.predict_proba(X), strict=True):
        np.testing.assert_array_equal(p, q)


@pytest.mark.parametrize(("dtype", "saved"), [("float32", 4), ("float16", 6)])
def test_weights_are_stored_in_fewer_bits_on_request(dtype, saved, tmp_path):
    crf = fit()
    crf.save(tmp_path / "double")
    crf.save(tmp_path / "rounded", dtype=dtype)
    difference = (tmp_path / "double").stat().st_size - (tmp_path / "rounded").stat().st_size
    assert difference == pytest.approx(saved * crf.model_.layout.size, abs=100)
    loaded = kernelcrf.load(tmp_path / "rounded")
    assert loaded.coef_.dtype == np.float64
    np.testing.assert_array_equal(loaded.coef_, crf.coef_.astype(dtype))
    assert loaded.certificate_.status == "rounded"
    assert not loaded.certificate_.is_certified
    with pytest.raises(ValueError, match=f"dtype='{dtype}'"):
        crf.save(tmp_path / "model.crfsuite", dtype=dtype)
    with pytest.raises(ValueError, match="dtype='int8'"):
        crf.save(tmp_path / "model", dtype="int8")


def test_weights_that_16_bits_cannot_hold_are_an_error(tmp_path):
    crf = fit()
    crf.model_ = crf.model_.divide_weights(1e-6)
    with pytest.raises(ValueError, match=r"the largest weight is .* numbers of this type go up to 6\.55e\+04"):
        crf.save(tmp_path / "model", dtype="float16")
    assert not (tmp_path / "model").exists()


def test_only_weights_may_have_16_bits(tmp_path):
    fit().save(tmp_path / "model")
    rewritten(tmp_path / "model", change_arrays=lambda arrays: arrays | {"gap_curve": np.zeros((1, 3), np.float16)})
    with pytest.raises(kernelcrf.ModelFileError, match="tensor 'gap_curve' has type F16"):
        kernelcrf.load(tmp_path / "model")


@pytest.mark.parametrize(
    "change",
    [
        lambda counts, labels: (counts[:-1], labels),
        lambda counts, labels: (counts, labels[:-1]),
        lambda counts, labels: (counts, labels + np.uint8(1)),
        lambda counts, labels: (counts, labels[::-1].copy()),
        lambda counts, labels: (np.append(counts, 0).astype(np.uint8), labels),
        lambda counts, labels: (np.append(counts[1:], counts[0]), labels),
        lambda counts, labels: (counts.astype(np.float64), labels),
    ],
)
def test_pairs_that_do_not_fit_are_refused(tmp_path, change):
    fit().save(tmp_path / "model")

    def changed(arrays):
        counts, labels = change(arrays["pairs.node.counts"], arrays["pairs.node.labels"])
        return {**arrays, "pairs.node.counts": counts, "pairs.node.labels": labels}

    rewritten(tmp_path / "model", change_arrays=changed)
    with pytest.raises(ModelFileError):
        kernelcrf.load(tmp_path / "model")


@pytest.mark.parametrize("changed", [{"penalty": ElasticNet(0.5)}, {"weights": 2.0}, {"weights": "all"}])
def test_a_checkpoint_of_other_penalties_or_pairs_is_refused(changed, tmp_path):
    X = [[{"word": "a"}, {"word": "b"}], [{"word": "b"}, {"word": "a"}], [{"word": "c"}]]
    y = [["x", "y"], ["y", "x"], ["x"]]
    path = tmp_path / "run.ckpt"
    ChainCRF("linear", C=1.0, checkpoint=path).fit(X, y)
    with pytest.raises(ValueError, match=r"was written by a fit that differs in (penalty|numbers of observed pairs)"):
        ChainCRF("linear", C=1.0, checkpoint=path, **changed).fit(X, y)


def test_C_is_chosen_for_the_pairs_of_the_fit(monkeypatch):
    """Fits to parts of the data, which choose C, drop rare pairs too."""
    rng = np.random.default_rng(0)
    X = [[[f"rare{rng.integers(500)}", f"w{rng.integers(3)}"] for _ in range(4)] for _ in range(60)]
    y = [[token[1] if rng.random() < 0.8 else "w0" for token in x] for x in X]
    sizes = []

    def recorded(problem, *others, **options):
        found = solve(problem, *others, **options)
        sizes.append(found.layout.size)
        return found

    solve = held_out.solve
    monkeypatch.setattr(held_out, "solve", recorded)
    crf = ChainCRF("linear", weights=5).fit(X, y)
    assert sizes
    assert max(sizes) <= crf.model_.layout.size
