"""Several inputs in the estimators of segments, rows, label sets and graphs: what holds for chains holds for all."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF
from sklearn.model_selection import GridSearchCV

from kernelcrf import GraphCRF, Input, KernelClassifier, MultiLabelCRF, SegmentCRF, load
from kernelcrf.penalties import GroupLasso
from kernelcrf.rules import Evidence

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(60, 3))
CLASSES = (ROWS[:, 0] + np.sin(2 * ROWS[:, 1]) + 0.5 * RNG.normal(size=60) > 0).astype(int)
SETS = np.column_stack((CLASSES, CLASSES ^ (RNG.random(60) < 0.2), ROWS[:, 1] > 0.3)).astype(int)
RING = [[0, 1], [1, 2], [2, 3], [3, 0]]
LABELS = np.split(CLASSES, 15)
WORDS = [{"word": str(round(value))} for value in ROWS[:, 2]]

MODELS = {
    "SegmentCRF": (SegmentCRF, LABELS),
    "KernelClassifier": (KernelClassifier, CLASSES),
    "MultiLabelCRF": (MultiLabelCRF, SETS),
    "GraphCRF": (GraphCRF, LABELS),
}
ALL = pytest.mark.parametrize("name", MODELS)
SETTINGS = {"C": 3.0, "tol": 1e-10, "random_state": 0}
COLUMNS = {"first": Input("linear", columns=[0]), "others": Input("linear", columns=[1, 2])}
BOTH = {"vectors": Input("rbf", n_components=12), "words": Input()}


def shaped(name, rows):
    """Rows, or the same numbers as sequences or as graphs."""
    if name in ("KernelClassifier", "MultiLabelCRF"):
        return rows
    parts = np.split(rows, 15)
    return parts if name == "SegmentCRF" else [(part, RING) for part in parts]


def entries(name):
    """Vectors and feature dicts of all rows, in the form of mappings that the estimator reads."""
    vectors, words = ROWS[:, :2], WORDS
    if name in ("KernelClassifier", "MultiLabelCRF"):
        return {"vectors": vectors, "words": words}
    parts = [{"vectors": vectors[4 * i : 4 * i + 4], "words": words[4 * i : 4 * i + 4]} for i in range(15)]
    return parts if name == "SegmentCRF" else [(part, RING) for part in parts]


def fitted(name, X, **parameters):
    model, y = MODELS[name]
    fixed = {"structure": [[0, 1]]} if name == "MultiLabelCRF" else {}
    return model(**SETTINGS | fixed | parameters).fit(X, y)


def probabilities(model, X, **options):
    return np.vstack(model.predict_proba(X, **options))


@ALL
@pytest.mark.parametrize("edges", [False, True], ids=["nodes", "edges"])
def test_two_linear_inputs_equal_their_columns_side_by_side(name, edges):
    X, options = shaped(name, ROWS), {"laplace": True}
    if edges and name == "KernelClassifier":
        options["fit_intercept"] = True
    elif edges:
        further = "segment_kernel" if name == "SegmentCRF" else "edge_kernel"
        options |= {further: "rbf", "gamma": 0.4, "n_components": None}
    joined = fitted(name, X, kernel="linear", **options)
    apart = fitted(name, X, inputs=COLUMNS, **options)
    assert apart.certificate_.objective == pytest.approx(joined.certificate_.objective, rel=1e-9)
    assert apart.log_marginal_likelihood() == pytest.approx(joined.log_marginal_likelihood(), abs=1e-3)
    np.testing.assert_allclose(probabilities(apart, X), probabilities(joined, X), atol=1e-5)
    assert apart.C_ == joined.C_ == 3.0
    assert apart.input_variances_ == {"first": 3.0, "others": 3.0}
    assert joined.input_variances_ == {}


@ALL
def test_two_kernels_equal_the_sum_of_both_with_their_variances(name):
    def total(X, Y):
        """The kernel 2 k_1 + 1/2 k_2, which has the prior variances 6 and 3/2 times those of C = 3."""
        return 2.0 * RBF(1.0)(X[:, :1], Y[:, :1]) + 0.5 * RBF(0.5)(X[:, 1:], Y[:, 1:])

    X = shaped(name, ROWS)
    inputs = {
        "first": Input(RBF(1.0), columns=slice(0, 1), C=6.0, n_components=None),
        "others": Input(RBF(0.5), columns=slice(1, 3), C=1.5, n_components=None),
    }
    joined = fitted(name, X, kernel=total, n_components=None)
    apart = fitted(name, X, inputs=inputs, certify_full=True)
    assert apart.certificate_.objective == pytest.approx(joined.certificate_.objective, rel=1e-8)
    assert apart.certificate_.gap_full <= 1e-8 * apart.certificate_.objective
    assert apart.input_variances_ == {"first": 6.0, "others": 1.5}
    np.testing.assert_allclose(probabilities(apart, X), probabilities(joined, X), atol=1e-5)


@ALL
def test_the_gap_of_all_functions_covers_what_more_landmarks_gain(name):
    X = entries(name)
    few = {"vectors": Input("rbf", n_components=3), "words": Input()}
    rough = fitted(name, X, inputs=few, certify_full=True).certificate_
    every = {"vectors": Input("rbf", n_components=None), "words": Input()}
    best = fitted(name, X, inputs=every).certificate_
    assert 0 < rough.objective - best.objective <= rough.gap_full
    grown = {"vectors": Input("rbf", n_components="auto"), "words": Input()}
    found = fitted(name, X, inputs=grown, tol=1e-3).certificate_
    assert found.status == "optimal"
    assert found.objective <= best.objective * (1 + 1e-3)


@ALL
def test_files_have_all_inputs_and_their_parameters(name, tmp_path):
    X = entries(name)
    inputs = {**BOTH, "again": Input(RBF(0.7), of="vectors", columns=slice(1, 2), n_components=5, C=2.0)}
    model = fitted(name, X, inputs=inputs, laplace=True, tol=1e-6)
    model.save(tmp_path / "model.kcrf")
    again = load(tmp_path / "model.kcrf")
    assert np.array_equal(probabilities(again, X), probabilities(model, X))
    assert again.get_params()["inputs__again__columns"] == slice(1, 2)
    assert str(again.get_params()["inputs__again__kernel"]) == str(RBF(0.7))
    assert again.input_variances_ == {"vectors": 3.0, "words": 3.0, "again": 2.0}
    assert again.log_marginal_likelihood() == model.log_marginal_likelihood()
    draws = {"posterior": "laplace", "n_samples": 5}
    assert np.array_equal(probabilities(again, X, **draws), probabilities(model, X, **draws))
    assert again.n_features_in_ == 2 + len({word["word"] for word in WORDS})
    assert again.landmarks_["words"] is None
    assert len(again.landmarks_["again"]) == 5
    warm = again.set_params(tol=1e-8, warm_start=True).fit(X, MODELS[name][1])
    assert warm.certificate_.objective == pytest.approx(model.certificate_.objective, rel=1e-5)
    with pytest.raises(ValueError, match="inputs__vectors__kernel='linear', but the previous fit had"):
        warm.set_params(inputs__vectors__kernel="linear").fit(X, MODELS[name][1])


@ALL
def test_the_posterior_equals_that_of_columns_side_by_side(name):
    X, draws = shaped(name, ROWS), {"posterior": "laplace", "n_samples": 500}
    joined, apart = (fitted(name, X, laplace=True, **own) for own in ({"kernel": "linear"}, {"inputs": COLUMNS}))
    np.testing.assert_allclose(probabilities(apart, X[:4], **draws), probabilities(joined, X[:4], **draws), atol=0.03)


@ALL
def test_held_out_samples_and_the_evidence_choose_a_variance_per_input(name):
    # The evidence of segments takes longer than the others, and more so with more weights of labels alone.
    n_noise, own = (2, {"ends": False, "max_duration": 2}) if name == "SegmentCRF" else (5, {})
    noise = np.random.default_rng(1).normal(size=(60, n_noise))
    X = shaped(name, np.hstack([ROWS, noise]))
    inputs = {"signal": Input("linear", columns=slice(0, 3)), "noise": Input("linear", columns=slice(3, None))}
    held_out = fitted(name, X, inputs=inputs, C="auto", tol=1e-6, **own)
    model = fitted(name, X, inputs=inputs, C="evidence", tol=1e-9, laplace=True, **own)
    for found in (held_out.input_variances_, model.input_variances_):
        assert found["noise"] < found["signal"]
    fixed = {**inputs, "noise": Input("linear", columns=slice(3, None), C=0.5)}
    given = fitted(name, X, inputs=fixed, C="evidence", tol=1e-4, **own)
    assert given.input_variances_["noise"] == 0.5
    # No other variances have a higher evidence.
    for factor in (0.5, 2.0):
        there = {key: clone(one).set_params(C=model.input_variances_[key]) for key, one in inputs.items()}
        there["signal"].set_params(C=factor * model.input_variances_["signal"])
        other = fitted(name, X, inputs=there, C=model.C_, tol=1e-9, laplace=True, **own)
        assert other.log_marginal_likelihood() < model.log_marginal_likelihood() + 1e-3


@ALL
def test_a_group_lasso_leaves_an_input_out(name):
    noise = np.random.default_rng(1).normal(size=(60, 2))
    inputs = {"signal": Input("linear", columns=slice(0, 3)), "noise": Input("rbf", columns=slice(3, 5))}
    model = fitted(
        name, shaped(name, np.hstack([ROWS, noise])), inputs=inputs, penalty=GroupLasso(1.0, "input"), tol=1e-6
    )
    assert model.certificate_.status == "optimal"
    weights = model.model_.layout.split(model.model_.theta)
    assert not any(weights[term].any() for term in weights if term.startswith("inputs__noise"))
    assert any(weights[term].any() for term in weights if term.startswith("inputs__signal"))


@ALL
def test_base_scores_add_to_several_inputs(name):
    X, shape = shaped(name, ROWS), (60, 3) if name == "MultiLabelCRF" else (60, 2)
    rows = np.random.default_rng(2).normal(size=shape)
    base = rows if name in ("KernelClassifier", "MultiLabelCRF") else np.split(rows, 15)
    model, y = MODELS[name]
    kwargs = SETTINGS | ({"structure": [[0, 1]]} if name == "MultiLabelCRF" else {})
    joined = model(kernel="linear", **kwargs).fit(X, y, base_scores=base)
    apart = model(inputs=COLUMNS, **kwargs).fit(X, y, base_scores=base)
    assert apart.certificate_.objective == pytest.approx(joined.certificate_.objective, rel=1e-9)
    with_base = (probabilities(one, X, base_scores=base) for one in (apart, joined))
    np.testing.assert_allclose(*with_base, atol=1e-5)


@ALL
def test_scikit_learn_reaches_the_parameters_of_inputs(name):
    model, y = MODELS[name]
    copy = clone(model(inputs=BOTH)).set_params(inputs__vectors__gamma=0.1, inputs__words=Input("linear", C=9.0))
    assert (BOTH["vectors"].gamma, copy.inputs["vectors"].gamma) == ("scale", 0.1)
    assert copy.get_params()["inputs__words__C"] == 9.0
    parameters = {"inputs__first__C": [1e-6, 1.0]}
    options = {"structure": "none"} if name == "MultiLabelCRF" else {}
    search = GridSearchCV(model(inputs=COLUMNS, C=1.0, **options), parameters, cv=3).fit(shaped(name, ROWS), y)
    assert search.best_params_ == {"inputs__first__C": 1.0}


@ALL
@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"inputs": {"a": Input(scores="steps")}}, r"inputs__a__scores='steps': expected 'tokens'.*, because"),
        ({"inputs": {"a": Input()}, "kernel": "rbf"}, "cannot be combined with kernel='rbf': set this parameter of"),
        ({"inputs": {"a": Input()}, "gamma": 0.3}, "cannot be combined with gamma=0.3: set this parameter of"),
        ({"inputs": {"a__b": Input()}}, "inputs has the name 'a__b': expected a non-empty string without '__'"),
        ({"inputs": {"a": Input(gamma=-1.0)}}, "inputs__a__gamma=-1.0: expected"),
        (
            {"inputs": {"a": Input(), "b": Input(of="a")}, "C": Evidence(optimize_kernel=True)},
            "the kernel of tokens only if one input scores them",
        ),
        ({"inputs": {"a": Input()}}, r"has no (entry|mappings)|expected an entry 'a'"),
    ],
)
def test_wrong_parameters_are_refused_by_name(name, parameters, message):
    with pytest.raises((ValueError, TypeError), match=message):
        fitted(name, entries(name), **parameters)


@ALL
def test_other_inputs_than_those_of_the_fit_are_refused(name):
    of_entries, of_columns = fitted(name, entries(name), inputs=BOTH), fitted(name, shaped(name, ROWS), inputs=COLUMNS)
    with pytest.raises(TypeError, match="expected mappings with the entries 'vectors', 'words'"):
        of_entries.predict(shaped(name, ROWS))
    with pytest.raises(TypeError, match="expected sequences that are not mappings"):
        of_columns.predict(entries(name))
    with pytest.raises(ValueError, match=f"X has 2 features, but {name} is expecting 3 features"):
        of_columns.predict(shaped(name, ROWS[:, :2]))


def test_the_name_of_the_inputs_of_segments_is_taken():
    with pytest.raises(ValueError, match=r"inputs has the name 'segments'.*pass of='segments'"):
        SegmentCRF(inputs={"segments": Input()}).fit(shaped("SegmentCRF", ROWS), LABELS)


@pytest.mark.parametrize("name", ["KernelClassifier", "MultiLabelCRF"])
def test_rows_of_weight_zero_are_not_read_for_their_words(name):
    model, y = MODELS[name]
    X, weights = entries(name), np.r_[np.ones(50), np.zeros(10)]
    X["words"] = WORDS[:50] + [{"word": "unseen"}] * 10
    few = {"vectors": X["vectors"][:50], "words": X["words"][:50]}
    options = {"structure": "none"} if name == "MultiLabelCRF" else {}
    weighted = model(inputs=BOTH, **SETTINGS, **options).fit(X, y, weights)
    left_out = model(inputs=BOTH, **SETTINGS, **options).fit(few, y[:50])
    assert weighted.n_features_in_ == left_out.n_features_in_
    assert weighted.certificate_.objective == pytest.approx(left_out.certificate_.objective, rel=1e-9)
    with pytest.raises(ValueError, match=r"numbers of rows .*: expected one row per sample in every entry"):
        left_out.predict({"vectors": X["vectors"], "words": WORDS[:50]})


@ALL
def test_no_samples_have_no_answers(name):
    for X, inputs in ((entries(name), BOTH), (shaped(name, ROWS), COLUMNS)):
        assert len(fitted(name, X, inputs=inputs).predict_proba([])) == 0


@pytest.mark.parametrize("name", ["KernelClassifier", "MultiLabelCRF"])
def test_rows_are_data_frames_with_columns_by_name_in_any_order(name):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(ROWS, columns=["u", "v", "w"])
    inputs = {"one": Input("linear", columns=["w"]), "two": Input("rbf", columns=["u", "v"], n_components=9)}
    model = fitted(name, frame, inputs=inputs)
    assert model.feature_names_in_.tolist() == ["u", "v", "w"]
    assert np.array_equal(probabilities(model, frame[["v", "w", "u"]]), probabilities(model, frame))


def test_the_latent_function_of_rows_is_the_sum_of_those_of_the_inputs():
    options = {"laplace": True, "fit_intercept": True}
    joined = fitted("KernelClassifier", ROWS, kernel="linear", **options)
    apart = fitted("KernelClassifier", ROWS, inputs=COLUMNS, **options)
    for ours, theirs in zip(apart.latent_mean_and_variance(ROWS), joined.latent_mean_and_variance(ROWS), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)
    words = fitted("KernelClassifier", entries("KernelClassifier"), inputs=BOTH, laplace=True)
    assert set(words.top_features(40).feature.str.partition("__")[0]) == {"vectors", "words"}
    assert words.get_feature_names_out()[0] == "vectors__kernelclassifier0"
    assert set(words.kernel_) == {"vectors", "words"}


def test_contributions_of_all_inputs_of_segments_sum_to_the_score():
    X = entries("SegmentCRF")
    crf = fitted("SegmentCRF", X, inputs=BOTH, fit_intercept=True)
    why = crf.explain(X[0], 2, n_terms=1000)
    assert sum(why.contributions) == pytest.approx(why.score, abs=1e-8)
    assert {term.split("__")[0] for term in why.terms} == {"vectors", "words", "intercept"}
    assert crf.landmark_positions_.shape == (12, 2)


def test_a_function_that_pools_segments_gets_sequences_with_all_entries():
    def longest(x, start, end):
        return {"words": len({token["word"] for token in x["words"][start:end]}), "first": x["vectors"][start, 0]}

    X = entries("SegmentCRF")
    crf = fitted("SegmentCRF", X, inputs=BOTH, segment_kernel="linear", pooling=longest, max_duration=3)
    assert crf.segment_coef_.shape == (2, 2)
    assert len(crf.predict(X)) == 15


def test_types_of_nodes_share_the_kernels_of_their_inputs():
    nodes = [graph for graph, _ in entries("GraphCRF")]
    X = [{"nodes": one, "edges": RING, "node_types": ["a", "b", "a", "b"]} for one in nodes]
    crf = fitted("GraphCRF", X, inputs=BOTH, certify_full=True)
    assert {kind: B.shape for kind, B in crf.landmarks_["vectors"].items()} == {"a": (12, 2), "b": (12, 2)}
    every = {"vectors": Input("rbf", n_components=None), "words": Input()}
    best = fitted("GraphCRF", X, inputs=every).certificate_
    assert 0 <= crf.certificate_.objective - best.objective <= crf.certificate_.gap_full
    assert crf.predict([]) == []
    no_edges = crf.predict([{"nodes": nodes[0], "edges": [], "node_types": ["a", "b", "a", "b"]}])
    assert no_edges[0].shape == (4,)


@pytest.mark.parametrize("inference", ["loopy", "gibbs"])
def test_inference_that_is_not_exact_reads_several_inputs(inference):
    X = shaped("GraphCRF", ROWS)
    joined, apart = (
        fitted("GraphCRF", X, inference=inference, tol=1e-8, **own)
        for own in ({"kernel": "linear"}, {"inputs": COLUMNS})
    )
    assert apart.certificate_.objective == pytest.approx(joined.certificate_.objective, rel=1e-7)


@pytest.mark.parametrize("name", ["GraphCRF", "MultiLabelCRF"])
def test_a_structure_search_reads_several_inputs(name):
    options = {"cliques": "auto"} if name == "GraphCRF" else {"structure": "auto", "edge_kernel": "linear"}
    X = shaped(name, ROWS)
    joined = fitted(name, X, kernel="linear", **options)
    apart = fitted(name, X, inputs=COLUMNS, **options)
    assert [one.template for one in apart.search_.absent] == [one.template for one in joined.search_.absent]
    assert apart.certificate_.objective == pytest.approx(joined.certificate_.objective, rel=1e-7)
    grown = {"first": Input("rbf", columns=[0], n_components="auto")}
    with pytest.raises(ValueError, match="a structure search needs a fixed number of landmarks"):
        fitted(name, X, inputs=grown, **options)


@ALL
def test_a_checkpoint_goes_on_with_several_inputs(name, tmp_path):
    X = entries(name)
    whole = fitted(name, X, inputs=BOTH)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted(name, X, inputs=BOTH, max_iter=2, checkpoint=tmp_path / "run")
    went_on = fitted(name, X, inputs=BOTH, checkpoint=tmp_path / "run")
    assert went_on.certificate_.objective == pytest.approx(whole.certificate_.objective, rel=1e-9)


@ALL
def test_a_warm_start_learns_new_feature_names(name):
    X, y = entries(name), MODELS[name][1]
    cold = fitted(name, X, inputs=BOTH)
    known = {word["word"] for word in WORDS[:20]}
    options = {"structure": [[0, 1]]} if name == "MultiLabelCRF" else {}
    if name in ("KernelClassifier", "MultiLabelCRF"):
        few, few_y = {"vectors": X["vectors"][:20], "words": X["words"][:20]}, y[:20]
    else:
        few, few_y = X[:5], y[:5]
    warm = MODELS[name][0](inputs=BOTH, warm_start=True, **SETTINGS | options).fit(few, few_y)
    assert warm.n_features_in_ == 2 + len(known) < cold.n_features_in_
    assert warm.fit(X, y).n_features_in_ == cold.n_features_in_
    assert warm.certificate_.status == "optimal"
    if name == "GraphCRF":
        warm = GraphCRF(inputs=BOTH, edge_kernel="linear", warm_start=True, **SETTINGS).fit(few, few_y)
        assert warm.fit(X, y).n_features_in_ == 2 + len(known)


@pytest.mark.parametrize("scores", ["starts", "ends"])
def test_an_input_of_first_or_last_tokens_of_segmentations_equals_a_kernel_that_is_zero_elsewhere(scores, tmp_path):
    """The kernel is k(x, x') f f', where the last column f is 1 at first (or last) tokens, and 0 elsewhere."""
    X, place = shaped("SegmentCRF", ROWS[:, :2]), {"starts": 0, "ends": -1}[scores]
    flagged = [np.hstack([x, np.zeros((len(x), 1))]) for x in X]
    for x in flagged:
        x[place, -1] = 1.0

    def total(A, B):
        return A[:, :2] @ B[:, :2].T + RBF(0.5)(A[:, :2], B[:, :2]) * np.outer(A[:, 2], B[:, 2])

    options = {"laplace": True, "ends": False, "fit_intercept": False}
    dense = fitted("SegmentCRF", flagged, kernel=total, n_components=None, **options)
    inputs = {"all": Input("linear"), "some": Input(RBF(0.5), n_components=None, scores=scores)}
    crf = fitted("SegmentCRF", X, inputs=inputs, certify_full=True, **options)
    assert crf.certificate_.objective == pytest.approx(dense.certificate_.objective, rel=1e-8)
    assert crf.certificate_.gap_full <= 1e-8 * crf.certificate_.objective
    assert crf.log_marginal_likelihood() == pytest.approx(dense.log_marginal_likelihood(), abs=1e-3)
    crf.save(tmp_path / "model.kcrf")
    for model in (crf, load(tmp_path / "model.kcrf")):
        np.testing.assert_allclose(probabilities(model, X), probabilities(dense, flagged), atol=1e-5)
    # With scores of the ends of segments, only the input of all tokens has them.
    both = fitted("SegmentCRF", X, inputs=inputs)
    assert [term.name for term in both.model_.layout.terms if "firsts" in term.name] == ["inputs__all__firsts"]
