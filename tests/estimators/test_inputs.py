"""Several inputs in one model: sums of kernels, columns side by side, files, searches, and errors."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF
from sklearn.model_selection import GridSearchCV

from kernelcrf import ChainCRF, Input, load
from kernelcrf.datasets import make_sequences
from kernelcrf.inference.loops import fused
from kernelcrf.partitions.fused_chains import MOST_INPUTS
from kernelcrf.penalties import ElasticNet
from kernelcrf.rules import Evidence

DATA = make_sequences(20, random_state=0)
SETTINGS = {"C": 3.0, "tol": 1e-10, "random_state": 0}


def words(x):
    return [{"v": str(round(value))} for value in x[:, 1]]


NAMED = [{"a": x[:, :1], "words": words(x)} for x in DATA.X]
BOTH = {"a": Input("rbf", gamma=0.8, n_components=None), "words": Input("linear")}


def same_probabilities(ours, X, theirs, Z, atol=1e-5):
    for p, q in zip(ours.predict_proba(X), theirs.predict_proba(Z), strict=True):
        np.testing.assert_allclose(p, q, atol=atol)


def test_two_linear_inputs_equal_their_columns_side_by_side():
    joined = ChainCRF("linear", **SETTINGS).fit(DATA.X, DATA.y)
    inputs = {"first": Input("linear", columns=[0]), "second": Input("linear", columns=[1])}
    apart = ChainCRF(inputs=inputs, **SETTINGS).fit(DATA.X, DATA.y)
    assert apart.certificate_.objective == pytest.approx(joined.certificate_.objective, rel=1e-9)
    np.testing.assert_allclose(apart.coef_, joined.coef_, atol=1e-4)
    same_probabilities(apart, DATA.X, joined, DATA.X)


def test_another_number_of_inputs_compiles_nothing():
    """A tuple of another length would be another type, for which Numba compiles for seconds."""
    counts, joined = [], ChainCRF("linear", **SETTINGS).fit(DATA.X, DATA.y)
    for n in (1, 2, 3, 4, MOST_INPUTS + 1):
        inputs = {f"x{k}": Input("linear", C=SETTINGS["C"] / n) for k in range(n)}
        crf = ChainCRF(inputs=inputs, solver="newton-cg", **SETTINGS).fit(DATA.X, DATA.y)
        assert crf.certificate_.objective == pytest.approx(joined.certificate_.objective, rel=1e-9)
        counts.append([len(getattr(loop, "signatures", ())) for loop in (fused.evaluate, fused.hessian_product)])
    assert counts == [counts[0]] * 5


def test_one_input_with_a_name_equals_the_model_without_names_to_the_bit():
    plain = ChainCRF("rbf", n_components=30, **SETTINGS).fit(DATA.X, DATA.y)
    named = ChainCRF(inputs={"x": Input("rbf", n_components=30)}, **SETTINGS).fit(DATA.X, DATA.y)
    assert named.certificate_ == plain.certificate_
    assert np.array_equal(named.coef_, plain.coef_)
    assert np.array_equal(named.landmark_positions_, plain.landmark_positions_)


def test_two_kernels_equal_the_sum_of_both_with_their_variances():
    def total(X, Y):
        """The kernel 2 k_1 + 1/2 k_2, which has the prior variances 6 and 3/2 times those of C = 3."""
        first, second = RBF(1.0)(X[:, :1], Y[:, :1]), RBF(0.5)(X[:, 1:], Y[:, 1:])
        return 2.0 * first + 0.5 * second

    joined = ChainCRF(total, n_components=None, **SETTINGS).fit(DATA.X, DATA.y)
    inputs = {
        "first": Input(RBF(1.0), columns=slice(0, 1), C=6.0, n_components=None),
        "second": Input(RBF(0.5), columns=slice(1, 2), C=1.5, n_components=None),
    }
    apart = ChainCRF(inputs=inputs, certify_full=True, **SETTINGS).fit(DATA.X, DATA.y)
    assert apart.certificate_.objective == pytest.approx(joined.certificate_.objective, rel=1e-8)
    assert apart.certificate_.gap_full <= 1e-8 * apart.certificate_.objective
    assert apart.input_variances_ == {"first": 6.0, "second": 1.5}
    assert apart.C_ == 3.0
    same_probabilities(apart, DATA.X, joined, DATA.X)


def test_the_gap_of_all_functions_covers_what_more_landmarks_gain():
    few = {"a": Input("rbf", gamma=0.8, n_components=3), "words": Input("linear")}
    rough = ChainCRF(inputs=few, certify_full=True, **SETTINGS).fit(NAMED, DATA.y).certificate_
    best = ChainCRF(inputs=BOTH, **SETTINGS).fit(NAMED, DATA.y).certificate_
    assert 0 < rough.objective - best.objective <= rough.gap_full
    grown = {"a": Input("rbf", gamma=0.8, n_components="auto"), "words": Input("linear")}
    grown = ChainCRF(inputs=grown, C=3.0, tol=1e-4, random_state=0).fit(NAMED, DATA.y).certificate_
    assert grown.status == "optimal"
    assert grown.objective <= best.objective * (1 + 1e-4)


def test_a_kernel_stands_for_an_input_with_this_kernel():
    steps = Input("linear", scores="steps")
    named = ChainCRF(inputs={"tokens": RBF(0.8), "between": steps}, **SETTINGS).fit(DATA.X, DATA.y)
    whole = ChainCRF(inputs={"tokens": Input(RBF(0.8)), "between": steps}, **SETTINGS).fit(DATA.X, DATA.y)
    assert named.certificate_.objective == whole.certificate_.objective
    same_probabilities(named, DATA.X, whole, DATA.X)
    crf = clone(ChainCRF(inputs={"tokens": "linear"})).set_params(inputs__tokens__C=2.0)
    assert (crf.inputs["tokens"].kernel, crf.inputs["tokens"].C) == ("linear", 2.0)
    assert crf.set_params(inputs__tokens="rbf").get_params()["inputs__tokens"] == "rbf"


def test_the_evidence_chooses_the_kernel_of_tokens_beside_an_input_of_steps():
    inputs = {"tokens": Input("rbf", n_components=10), "steps": Input("linear", scores="steps")}
    data = make_sequences(40, random_state=0)
    X, y = data.X[:20], data.y[:20]
    rule = Evidence(10.0, optimize_kernel=True)
    crf = ChainCRF(inputs=inputs, C=rule, random_state=0).fit(X, y)
    own = {"tokens": Input("rbf", n_components=10, gamma=crf.kernel_["tokens"].gamma), "steps": inputs["steps"]}
    found = crf.set_params(laplace=True).fit(X, y).log_marginal_likelihood()
    before = ChainCRF(inputs=inputs, C=10.0, laplace=True, random_state=0).fit(X, y)
    assert found > before.log_marginal_likelihood()
    fixed = ChainCRF(inputs=own, C=10.0, laplace=True, random_state=0).fit(X, y)
    assert fixed.log_marginal_likelihood() == pytest.approx(found, rel=1e-2)


@pytest.mark.few
@pytest.mark.parametrize("solver", ["lbfgs", "newton-cg"])
@pytest.mark.parametrize("scores", ["starts", "ends"])
def test_an_input_of_first_or_last_tokens_equals_a_kernel_that_is_zero_elsewhere(scores, solver, tmp_path):
    """The input has the kernel k(x, x') f f', where the last column f is 1 at first (or last) tokens, else 0."""
    place = {"starts": 0, "ends": -1}[scores]
    flagged = [np.hstack([x, np.zeros((len(x), 1))]) for x in DATA.X]
    for x in flagged:
        x[place, -1] = 1.0

    def at_the_place(X, Y):
        return RBF(0.5)(X[:, :2], Y[:, :2]) * np.outer(X[:, 2], Y[:, 2])

    def total(X, Y):
        return RBF(1.0)(X[:, :2], Y[:, :2]) + at_the_place(X, Y)

    options = {**SETTINGS, "solver": solver, "laplace": True}
    dense = ChainCRF(total, n_components=None, **options, fit_intercept=False).fit(flagged, DATA.y)
    inputs = {"all": Input(RBF(1.0), n_components=None), "place": Input(RBF(0.5), n_components=None, scores=scores)}
    crf = ChainCRF(inputs=inputs, certify_full=True, **options, fit_intercept=False).fit(DATA.X, DATA.y)
    assert crf.certificate_.objective == pytest.approx(dense.certificate_.objective, rel=1e-8)
    assert crf.certificate_.gap_full <= 1e-7 * crf.certificate_.objective
    assert crf.log_marginal_likelihood() == pytest.approx(dense.log_marginal_likelihood(), rel=1e-6)
    same_probabilities(crf, DATA.X, dense, flagged)
    ours, theirs = (model.explain(x[0], 0, 1, n_terms=1) for model, x in ((crf, DATA.X), (dense, flagged)))
    assert (ours.score, ours.p) == pytest.approx((theirs.score, theirs.p), abs=1e-5)
    crf.save(tmp_path / "model.kcrf")
    again = load(tmp_path / "model.kcrf")
    assert again.inputs["place"].scores == scores
    same_probabilities(again, DATA.X, crf, DATA.X, atol=1e-12)


def test_certified_labels_and_bounds_count_inputs_of_first_tokens():
    inputs = {"all": Input("rbf", n_components=None), "place": Input("rbf", n_components=3, scores="starts")}
    rough = ChainCRF(inputs=inputs, certify_full=True, **SETTINGS).fit(DATA.X, DATA.y)
    exact = {name: Input("rbf", n_components=None, scores=one.scores) for name, one in inputs.items()}
    best = ChainCRF(inputs=exact, **SETTINGS).fit(DATA.X, DATA.y)
    truth = rough.certificate_.objective - best.certificate_.objective
    assert 0 < truth <= rough.certificate_.gap_full <= 5 * truth
    stopped = ChainCRF(inputs=exact, C=3.0, tol=1e-3).fit(DATA.X, DATA.y)
    certified = stopped.distribution(DATA.X).certify()
    labels = np.concatenate(best.predict(DATA.X))
    sure = np.concatenate(certified.margins) > 0
    assert 0 < sure.sum() < len(sure)
    assert (np.concatenate(stopped.predict(DATA.X))[sure] == labels[sure]).all()


@pytest.mark.few(1)
@pytest.mark.parametrize("solver", ["lbfgs", "newton-cg"])
def test_evidence_and_posterior_equal_those_of_columns_side_by_side(solver):
    options = {"laplace": True, "solver": solver, **SETTINGS}
    joined = ChainCRF("linear", **options).fit(DATA.X, DATA.y)
    inputs = {"first": Input("linear", columns=[0]), "second": Input("linear", columns=[1])}
    apart = ChainCRF(inputs=inputs, **options).fit(DATA.X, DATA.y)
    assert apart.log_marginal_likelihood() == pytest.approx(joined.log_marginal_likelihood(), rel=1e-7)
    draws = {"posterior": "laplace", "n_samples": 500}
    for p, q in zip(apart.predict_proba(DATA.X[:4], **draws), joined.predict_proba(DATA.X[:4], **draws), strict=True):
        np.testing.assert_allclose(p, q, atol=0.02)


def test_the_evidence_finds_a_variance_per_input_and_switches_noise_off():
    rng = np.random.default_rng(0)
    X = [np.column_stack([x, rng.normal(size=(len(x), 3))]) for x in DATA.X]
    signal = Input("rbf", gamma=0.8, columns=slice(0, 2), n_components=10)
    inputs = {"signal": signal, "noise": Input("linear", columns=slice(2, 5))}
    crf = ChainCRF(inputs=inputs, C="evidence", tol=1e-8, laplace=True, random_state=0).fit(X, DATA.y)
    found = crf.input_variances_
    assert found["noise"] < 0.05 < found["signal"]
    # No other variances have a higher evidence.
    for name, factor in [("signal", 1.5), ("signal", 1 / 1.5), ("noise", 3.0)]:
        there = {other: clone(one).set_params(C=found[other]) for other, one in inputs.items()}
        there[name].set_params(C=factor * found[name])
        other = ChainCRF(inputs=there, C=crf.C_, tol=1e-8, laplace=True, random_state=0).fit(X, DATA.y)
        assert other.log_marginal_likelihood() < crf.log_marginal_likelihood() + 1e-3


def test_held_out_sequences_choose_a_variance_per_input():
    rng = np.random.default_rng(0)
    X = [np.column_stack([x, rng.normal(size=(len(x), 10))]) for x in DATA.X]
    signal = Input("rbf", gamma=0.8, columns=slice(0, 2), n_components=20)
    inputs = {"signal": signal, "noise": Input("linear", columns=slice(2, 12))}
    found = ChainCRF(inputs=inputs, tol=1e-2).fit(X, DATA.y).input_variances_
    assert found["noise"] < found["signal"]
    fixed = {**inputs, "noise": Input("linear", columns=slice(2, 12), C=0.5)}
    assert ChainCRF(inputs=fixed, tol=1e-2).fit(X, DATA.y).input_variances_["noise"] == 0.5


def test_files_have_all_inputs_and_their_parameters(tmp_path):
    inputs = {
        "vectors": Input(RBF(0.7), n_components=10, columns=slice(0, 2), C=2.0),
        "words": Input(),
        "steps": Input("linear", of="vectors", columns=[1], scores="steps"),
    }
    X = [{"vectors": x, "words": words(x)} for x in DATA.X]
    crf = ChainCRF(inputs=inputs, C=3.0, random_state=0, fit_intercept="boundaries", laplace=True)
    crf.fit(X, DATA.y).save(tmp_path / "model.kcrf")
    again = load(tmp_path / "model.kcrf")
    for ours, theirs in zip(crf.predict_proba(X), again.predict_proba(X), strict=True):
        assert np.array_equal(ours, theirs)
    assert again.get_params()["inputs__vectors__columns"] == slice(0, 2)
    assert str(again.get_params()["inputs__vectors__kernel"]) == str(RBF(0.7))
    assert again.input_variances_ == {"vectors": 2.0, "words": 3.0, "steps": 3.0}
    assert np.array_equal(again.get_feature_names_out(), crf.get_feature_names_out())
    assert str(again.explain(X[0], 1)) == str(crf.explain(X[0], 1))
    assert again.log_marginal_likelihood() == crf.log_marginal_likelihood()
    fitted = again.set_params(tol=1e-6, warm_start=True).fit(X, DATA.y)
    assert fitted.certificate_.objective == pytest.approx(crf.certificate_.objective, rel=1e-3)
    with pytest.raises(ValueError, match="it has the inputs 'vectors', 'words', 'steps'"):
        crf.save(tmp_path / "model.crfsuite")


def test_contributions_of_all_inputs_sum_to_the_score():
    crf = ChainCRF(inputs=BOTH, C=3.0, random_state=0, fit_intercept=True).fit(NAMED, DATA.y)
    why = crf.explain(NAMED[0], 2, n_terms=1000)
    assert sum(why.contributions) == pytest.approx(why.score, abs=1e-8)
    assert why.n_rest == 0
    assert {name.split("__")[0] for name in why.terms} == {"a", "words", "intercept"}
    assert {one.column for one in why.columns} == {"a__x0"}
    listed = dict(zip(why.terms, why.positions.tolist(), strict=True))
    assert listed["a__landmark 0"] == crf.landmark_positions_[0].tolist()
    assert listed["intercept"] == [-1, -1]
    assert crf.top_features(2).feature.str.contains("__").all()
    assert crf.select_for_labelling(NAMED, 3, random_state=0).shape == (3,)


def test_scikit_learn_reaches_the_parameters_of_inputs():
    crf = ChainCRF(inputs=BOTH, **SETTINGS)
    copy = clone(crf).set_params(inputs__a__gamma=0.1, inputs__words=Input("linear", C=9.0))
    assert (crf.inputs["a"].gamma, copy.inputs["a"].gamma) == (0.8, 0.1)
    both = clone(crf).set_params(inputs__words__C=7.0, inputs__words=Input("linear"))
    assert both.inputs["words"].C == 7.0
    assert (crf.inputs["words"].C, copy.get_params()["inputs__words__C"]) == (None, 9.0)
    search = GridSearchCV(ChainCRF(inputs=BOTH, C=1.0), {"inputs__a__gamma": [1e-6, 0.8]}, cv=3)
    assert search.fit(NAMED, DATA.y).best_params_ == {"inputs__a__gamma": 0.8}
    with pytest.raises(ValueError, match="there is no input 'b'; expected one of 'a', 'words'"):
        crf.set_params(inputs__b__C=1.0)


def test_frames_have_columns_by_name_in_any_order():
    pd = pytest.importorskip("pandas")
    X = [pd.DataFrame(x, columns=["u", "v"]) for x in DATA.X]
    inputs = {"one": Input("linear", columns=["v"]), "two": Input("rbf", columns=["u"], n_components=10)}
    crf = ChainCRF(inputs=inputs, C=1.0, random_state=0).fit(X, DATA.y)
    assert crf.feature_names_in_.tolist() == ["u", "v"]
    assert crf.get_feature_names_out()[0] == "one__v"
    same_probabilities(crf, X, crf, [x[["v", "u"]] for x in X], atol=0)


def test_flat_inputs_with_lengths_are_a_mapping():
    flat = {"a": np.concatenate([x["a"] for x in NAMED]), "words": [token for x in NAMED for token in x["words"]]}
    lengths = [len(x) for x in DATA.X]
    crf = ChainCRF(inputs=BOTH, **SETTINGS).fit(NAMED, DATA.y)
    again = ChainCRF(inputs=BOTH, **SETTINGS).fit(flat, np.concatenate(DATA.y), lengths=lengths)
    assert np.array_equal(crf.coef_, again.coef_)
    for ours, theirs in zip(crf.predict(NAMED), again.predict(flat, lengths=lengths), strict=True):
        assert np.array_equal(ours, theirs)


def test_sparse_inputs_have_weights_for_observed_pairs(tmp_path):
    X = [{"a": sp.csr_array(x > 0).astype(float), "words": words(x)} for x in DATA.X]
    inputs = {"a": Input(), "words": Input()}
    few, all_pairs = (ChainCRF(inputs=inputs, weights=own, **SETTINGS).fit(X, DATA.y) for own in ("observed", "all"))
    assert few.certificate_.objective >= all_pairs.certificate_.objective
    assert few.model_.layout.size < all_pairs.model_.layout.size
    sparse = ChainCRF(inputs=inputs, penalty=ElasticNet(1.0), **SETTINGS).fit(X, DATA.y)
    assert sparse.certificate_.status == "optimal"
    assert 0 < (sparse.coef_ != 0).sum() < (few.coef_ != 0).sum()


@pytest.mark.parametrize("weights", ["observed", "all"])
def test_the_dual_solver_reads_sparse_inputs_and_dense_ones_beside_them(weights):
    X = [{"a": sp.csr_array(x > 0).astype(float), "words": words(x)} for x in DATA.X]
    inputs = {"a": Input(C=0.3), "words": Input(C=5.0)}
    options = {"inputs": inputs, "fit_intercept": True, "weights": weights, **SETTINGS}
    dual, lbfgs = (ChainCRF(solver=solver, **options).fit(X, DATA.y) for solver in ("dual", "lbfgs"))
    assert dual.certificate_.status == "optimal"
    assert dual.certificate_.objective == pytest.approx(lbfgs.certificate_.objective, rel=1e-9)
    np.testing.assert_allclose(dual.coef_, lbfgs.coef_, atol=1e-3)
    beside = {**options, "inputs": {"a": Input("rbf", C=0.3), "words": Input(C=5.0)}}
    dual, lbfgs = (ChainCRF(solver=solver, **beside).fit(NAMED, DATA.y) for solver in ("dual", "lbfgs"))
    assert dual.certificate_.objective == pytest.approx(lbfgs.certificate_.objective, rel=1e-9)
    alone = ChainCRF(inputs={"a": Input("rbf")}, solver="dual", C=1.0)
    with pytest.raises(ValueError, match="solver='dual' cannot minimise this objective"):
        alone.fit(NAMED, DATA.y)


def test_a_checkpoint_continues_a_fit_of_several_inputs_and_knows_its_data(tmp_path):
    options = {"inputs": BOTH, "checkpoint": tmp_path / "run.ckpt", **SETTINGS}
    crf = ChainCRF(**options).fit(NAMED, DATA.y)
    assert ChainCRF(**options).fit(NAMED, DATA.y).n_iter_ <= crf.n_iter_ + 2
    other = [{**x, "a": x["a"] + 1.0} for x in NAMED]
    with pytest.raises(ValueError, match="a fit that differs in X"):
        ChainCRF(**options).fit(other, DATA.y)


@pytest.mark.parametrize(
    ("inputs", "X", "message"),
    [
        (BOTH, DATA.X, r"X\[0\] has the entries|the sequences of X are not mappings|has 2 features|entry"),
        ({"a": Input(), "b": Input()}, NAMED, r"X\[0\] has the entries 'a', 'words': expected an entry 'b'"),
        ({"a": Input(of="a")}, DATA.X, r"inputs\['a'\] has of='a', but the sequences of X are not mappings"),
        ({"a": Input(columns=[7])}, DATA.X, r"inputs\['a'\] has the column 7: expected a slice, or a list of indices"),
        ({"a": Input(columns=["u"])}, DATA.X, "because X has no column names"),
        ({"a": Input(columns=slice(5, 9))}, DATA.X, "which selects no column"),
        ({"words": Input(columns=[0])}, NAMED, "feature dicts, which have no columns"),
        (
            {"a": Input("linear"), "words": Input()},
            [{**NAMED[0], "words": NAMED[0]["words"][:2]}],
            "expected one row per",
        ),
        ({"a": Input("linear")}, {"a": DATA.X}, "X is a mapping: expected a list with one mapping per sequence"),
        ({"a": Input("linear")}, [{"a": [["x"]]}, {"a": [[1.0]]}], "entry 'a': X"),
    ],
)
def test_wrong_data_are_refused_by_name(inputs, X, message):
    if inputs is BOTH:
        crf = ChainCRF(inputs=BOTH, C=1.0).fit(NAMED, DATA.y)
        with pytest.raises(TypeError, match="expected mappings with the entries 'a', 'words'"):
            crf.predict(X)
        return
    y = [[0] * (len(x) if not isinstance(x, dict) else len(x.get("a", [0]))) for x in X]
    with pytest.raises((ValueError, TypeError), match=message):
        ChainCRF(inputs=inputs, C=1.0).fit(X, y)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"inputs": {}}, "expected a dict from names to kernels or kernelcrf.Input"),
        ({"inputs": {"a": "sigmoid"}}, "expected a dict from names to kernels or kernelcrf.Input"),
        ({"inputs": {"a__b": Input()}}, "inputs has the name 'a__b': expected a non-empty string without '__'"),
        ({"inputs": {"a": Input(gamma=-1.0)}}, "inputs__a__gamma=-1.0: expected"),
        ({"inputs": {"a": Input(scores="steps")}}, "expected at least one input that scores all tokens"),
        ({"inputs": {"a": Input()}, "kernel": "rbf"}, "cannot be combined with kernel='rbf': set this parameter of"),
        (
            {"inputs": {"a": Input(), "b": Input()}, "C": Evidence(optimize_kernel=True)},
            r"optimize_kernel=True, n_restarts=0\): the evidence chooses the kernel of",
        ),
        ({"inputs": {"a": Input("rbf")}, "penalty": ElasticNet(0.1)}, "inputs__a__kernel"),
    ],
)
def test_wrong_parameters_are_refused_by_name(parameters, message):
    with pytest.raises(ValueError, match=message):
        ChainCRF(**{"C": 1.0} | parameters).fit(DATA.X, DATA.y)


def test_columns_of_an_input_keep_their_numbers():
    rng = np.random.default_rng(0)
    X, y = [rng.normal(size=(4, 2)) for _ in range(4)], [[0, 1, 0, 1]] * 4
    inputs = {"r": Input("rbf", columns=[1], n_components=2), "l": Input("linear", columns=[1])}
    crf = ChainCRF(inputs=inputs, C=3.0, random_state=0).fit(X, y)
    assert [one.column for one in crf.explain(X[0], 0).columns] == ["r__x1"]
    assert "l__x1" in crf.top_features(9)["feature"].tolist()


def test_the_order_of_the_features_in_a_dict_changes_no_probability():
    """A kernel with landmarks reads the entries of feature dicts before another term reads them."""
    X = [[{"b": 2.0, "a": 1.0, "c": 3.0}, {"c": 1.0, "a": 5.0}]] * 4
    inputs = {"near": Input("rbf", gamma=0.1, n_components=2), "next": Input("linear", scores="steps")}
    crf = ChainCRF(inputs=inputs, C=1.0, random_state=0).fit(X, [["x", "y"]] * 4)
    ordered = [[dict(sorted(token.items())) for token in X[0]]]
    np.testing.assert_allclose(crf.predict_proba(X[:1])[0], crf.predict_proba(ordered)[0], atol=1e-12)
