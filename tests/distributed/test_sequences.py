from functools import partial

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from chain_fits import of_tokens_and_steps
from clusters import Inline
from kernelcrf import ChainCRF, Input
from kernelcrf.basis import Landmarks
from kernelcrf.distributed.sequences import SequencePartReader, read_sequence_parts
from kernelcrf.distributed.sources import RawSequences, SequenceSources, _read_frame, split_evenly
from kernelcrf.kernels import Polynomial
from kernelcrf.rules import Evidence
from kernelcrf.score.cliques import TOKENS

WORDS = ["the", "a", "cat", "dog", "runs", "sits", "on", "mat"]
TAGS = {"the": "D", "a": "D", "cat": "N", "dog": "N", "runs": "V", "sits": "V", "on": "P", "mat": "N"}


@pytest.fixture(scope="module")
def text():
    rng = np.random.default_rng(0)
    X = [[{"w": WORDS[k], "odd": float(k % 2)} for k in rng.integers(8, size=rng.integers(1, 9))] for _ in range(40)]
    y = [[TAGS[token["w"]] if rng.random() > 0.2 else "N" for token in x] for x in X]
    return X, y


@pytest.fixture(scope="module")
def vectors():
    rng = np.random.default_rng(1)
    X = [rng.normal(size=(rng.integers(1, 9), 3)) for _ in range(40)]
    y = [np.where(np.sin(2 * x[:, 0]) > 0, "up", "down").tolist() for x in X]
    return X, y


def agree(model, X, y, **fit):
    """The same estimator here and on a cluster, whose iterations are the same."""
    here = clone(model).set_params(solver="lbfgs", tol=1e-5).fit(X, y, **fit)
    there = clone(model).set_params(solver="lbfgs", tol=1e-5, engine=Inline(forgetful=False)).fit(X, y, **fit)
    assert there.certificate_.objective == pytest.approx(here.certificate_.objective, rel=1e-10)
    assert there.classes_.tolist() == here.classes_.tolist()
    assert there.n_features_in_ == here.n_features_in_
    for own, theirs in zip(here.predict(X), there.predict(X), strict=True):
        np.testing.assert_array_equal(theirs, own)
    return here, there


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"hash_features": 2**8},
        {"class_weight": "balanced"},
        {"class_weight": {"V": 3.0}},
        {"classes": ["D", "N", "V", "P", "X"]},
        {"constraints": [(a, b) for a in "DNVP" for b in "DNVP"]},
        {"kernel": "rbf", "n_components": Landmarks(6, "random"), "random_state": 0},
    ],
)
def test_feature_dicts(text, settings):
    here, there = agree(ChainCRF(**{"kernel": "linear", "C": 1.0, **settings}), *text)
    assert there.model_.reader.to_config() == here.model_.reader.to_config()


@pytest.mark.parametrize("kernel", ["linear", "rbf", "poly"])
def test_vectors(vectors, kernel):
    here, there = agree(ChainCRF(kernel, n_components=20, random_state=0, C=1.0), *vectors)
    if kernel != "linear":
        assert there.kernel_.gamma == pytest.approx(here.kernel_.gamma, rel=1e-12)
        np.testing.assert_array_equal(there.landmark_positions_, here.landmark_positions_)


def test_weights_and_missing_labels(text):
    X, y = text
    known = [[None if k % 3 == 2 else label for k, label in enumerate(row)] for row in y]
    known[0] = [{"N", "V"}] * len(y[0])
    agree(ChainCRF("linear", random_state=0, C=1.0), X, known)
    agree(ChainCRF("linear", C=1.0), X, y, sample_weight=np.linspace(0.5, 2, len(X)))


EVIDENCE = {
    "exact": {"laplace": True},
    "steps with inputs": {
        "laplace": True,
        "inputs": of_tokens_and_steps("rbf", "linear", n_components=10),
        "n_components": 500,
    },
    "C": {"C": "evidence"},
    "kernel and C": {"C": Evidence(optimize_kernel=True), "n_components": 5},
    "growing basis": {"laplace": True, "n_components": "auto", "tol": 0.05},
}


@pytest.mark.parametrize("settings", EVIDENCE.values(), ids=EVIDENCE)
def test_the_evidence_is_that_of_one_machine(vectors, settings):
    settings = {"C": 1.0, "n_components": 10, "random_state": 0, "tol": 1e-9, **settings}
    here = ChainCRF(**settings).fit(*vectors)
    there = ChainCRF(**settings, engine=Inline(forgetful=False)).fit(*vectors)
    assert there.log_marginal_likelihood() == pytest.approx(here.log_marginal_likelihood(), rel=1e-10)
    assert pytest.approx(here.C_, rel=1e-6) == there.C_
    gammas = [{name: one.gamma for name, one in crf.model_.kernels.items()} for crf in (here, there)]
    assert gammas[1] == pytest.approx(gammas[0], rel=1e-6)
    if "laplace" in settings:
        drawn = [np.concatenate(crf.predict_proba(vectors[0], posterior="laplace")) for crf in (here, there)]
        np.testing.assert_allclose(drawn[1], drawn[0], atol=1e-6)


def test_the_evidence_of_hashed_features_leaves_aside_columns_that_no_part_has(text, monkeypatch):
    settings = {"kernel": "linear", "C": 1.0, "hash_features": 2**8, "laplace": True, "solver": "lbfgs", "tol": 1e-9}
    here = ChainCRF(**settings).fit(*text)
    there = ChainCRF(**settings, engine=Inline(forgetful=False)).fit(*text)
    assert there.log_marginal_likelihood() == pytest.approx(here.log_marginal_likelihood(), rel=1e-10)
    # The stochastic way, for more weights than a matrix holds.
    monkeypatch.setattr("kernelcrf.fitting.laplace.MOST_EXACT", 10)
    here.fit(*text)
    there.fit(*text)
    assert there.log_marginal_likelihood() == pytest.approx(here.log_marginal_likelihood(), rel=1e-10)
    assert there.log_marginal_likelihood_error_ > 0


def test_a_saved_model_is_the_same_wherever_it_was_fitted(text, tmp_path):
    import kernelcrf

    _, there = agree(ChainCRF("linear", C=1.0), *text)
    there.save(tmp_path / "model")
    loaded = kernelcrf.load(tmp_path / "model")
    assert all(map(np.array_equal, loaded.predict(text[0]), there.predict(text[0])))


def test_a_warm_start_goes_on(text):
    X, y = text
    model = ChainCRF("linear", solver="lbfgs", tol=1e-8, warm_start=True, engine=Inline(forgetful=False), C=1.0).fit(
        X, y
    )
    first = model.n_iter_
    assert model.fit(X, y).n_iter_ < first / 5


@pytest.mark.parametrize("options", [{}, {"laplace": True}, {"hash_features": 2**8, "laplace": "diagonal"}], ids=str)
def test_a_prior_is_updated_on_parts_as_on_all_data(text, options):
    """New words and a new label come with the new data."""
    X, y = text
    first = [k for k, row in enumerate(y) if "P" not in row]
    old = ChainCRF("linear", C=1.0, tol=1e-8, **options).fit([X[k] for k in first], [y[k] for k in first])
    settings = {name: value for name, value in options.items() if name == "hash_features"}
    agree(ChainCRF("linear", prior=old, **settings), X, y)
    agree(ChainCRF("linear", prior=old, C=2.0, class_weight="balanced", **settings), X, y)
    engine = Inline(forgetful=False)
    same = ChainCRF("linear", prior=old, engine=engine, **settings).fit(X, y, sample_weight=np.zeros(len(X)))
    np.testing.assert_array_equal(same.coef_, old.coef_)


def test_a_prior_keeps_its_landmarks_on_parts(vectors):
    X, y = vectors
    old = ChainCRF("rbf", C=1.0, n_components=8, random_state=0).fit(X[:15], y[:15])
    _, there = agree(ChainCRF(prior=old, n_components=Landmarks(14, "random"), random_state=0), X, y)
    np.testing.assert_array_equal(there.landmarks_[:8], old.landmarks_)
    of_entries = ChainCRF(inputs={"a": "linear"}, C=1.0).fit([{"a": x} for x in X], y)
    with pytest.raises(TypeError, match="expected mappings with the entries 'a'"):
        ChainCRF(inputs={"a": "linear"}, prior=of_entries, engine=Inline()).fit(X, y)


@pytest.fixture(scope="module")
def entries(text, vectors):
    """Sequences with words and two columns of numbers per token, and their labels."""
    rng = np.random.default_rng(2)
    X = [{"words": x, "numbers": rng.normal(size=(len(x), 2)) + (len(x) % 2)} for x in text[0]]
    return X, text[1]


@pytest.mark.parametrize(
    "settings",
    [
        {"inputs": {"words": Input("linear"), "numbers": Input("rbf", n_components=8)}},
        {
            "inputs": {
                "words": Input("linear", scores="steps"),
                "first": Input("rbf", of="numbers", columns=[0], n_components=6),
                "both": Input("linear", of="numbers"),
            },
            "certify_full": True,
        },
        {"inputs": {"numbers": Input("rbf", n_components=8), "words": Input("linear")}, "hash_features": 2**6},
        {"inputs": {"words": Input("linear")}, "class_weight": {"D": 0.0}},
    ],
    ids=["words and numbers", "columns", "hashed", "weights"],
)
def test_inputs_that_read_entries_and_columns(entries, settings):
    here, there = agree(ChainCRF(C=1.0, random_state=0, **settings), *entries)
    assert there.model_.reader.to_config() == here.model_.reader.to_config()
    if settings.get("certify_full"):
        assert there.certificate_.gap_full == pytest.approx(here.certificate_.gap_full, rel=1e-5)


def test_entries_are_updated_and_go_on(entries):
    X, y = entries
    first = [k for k, row in enumerate(y) if "P" not in row]
    settings = {"inputs": {"words": Input("linear"), "numbers": Input("rbf", n_components=8)}, "random_state": 0}
    old = ChainCRF(C=1.0, tol=1e-8, **settings).fit([X[k] for k in first], [y[k] for k in first])
    agree(ChainCRF(prior=old, C=2.0, **settings), X, y)
    model = ChainCRF(C=1.0, **settings, solver="lbfgs", tol=1e-8, warm_start=True, engine=Inline(forgetful=False))
    assert model.fit(X, y).fit(X, y).n_iter_ <= 1


def test_parts_with_other_entries_are_refused(entries):
    X, y = entries
    parts = [partial(RawSequences, X[:20], y[:20]), partial(RawSequences, [x["words"] for x in X[20:]], y[20:])]
    inputs = {"words": Input("linear")}
    with pytest.raises(ValueError, match=r"the entries \['words'\] in one part and sequences that are not mappings"):
        ChainCRF(inputs=inputs, C=1.0, engine=Inline()).fit(SequenceSources(parts))
    narrow = [{**x, "numbers": x["numbers"][:, :1]} for x in X[20:]]
    parts[1] = partial(RawSequences, narrow, y[20:])
    with pytest.raises(ValueError, match="entry 'numbers': X has 2 features in one part and 1 features in another"):
        ChainCRF(inputs={"numbers": Input("linear")}, C=1.0, engine=Inline()).fit(SequenceSources(parts))
    with pytest.raises(ValueError, match="the column 2: expected a slice"):
        ChainCRF(inputs={"a": Input(of="numbers", columns=[2])}, C=1.0, engine=Inline()).fit(X, y)


def test_parts_may_be_read_where_they_are_needed(text):
    X, y = text
    parts = [lambda low=low: RawSequences(X[low : low + 7], y[low : low + 7]) for low in range(0, len(X), 7)]
    here = ChainCRF("linear", solver="lbfgs", tol=1e-9, C=1.0).fit(X, y)
    engine = Unpickled(n_partitions=2, forgetful=False)
    there = ChainCRF("linear", solver="lbfgs", tol=1e-9, engine=engine, C=1.0).fit(
        SequenceSources([*parts, partial(RawSequences, [], [])])
    )
    assert there.certificate_.objective == pytest.approx(here.certificate_.objective, rel=1e-10)


class Unpickled(Inline):
    """Takes calls that do not travel."""

    def load(self, sources):
        from clusters import Known

        return [Known(source()) for source in sources]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lengths": [1, 2]}, "lengths cannot be used with data on a cluster"),
        ({"y": None}, "expected a label for each token"),
        ({"sample_weight": [1.0]}, r"sample_weight has shape \(1,\)"),
    ],
)
def test_what_a_cluster_does_not_take_is_named(text, change, message):
    X, y = text
    with pytest.raises(ValueError, match=message):
        ChainCRF("linear", engine=Inline(), C=1.0).fit(X, **({"y": y} | change))


def test_labels_that_break_constraints_are_named_by_their_place_in_all_data(text):
    X, y = text
    pairs = [(a, b) for a in "DNVP" for b in "DNVP" if (a, b) != ("V", "V")]
    broken = next(i for i, row in enumerate(y) if "V V" in " ".join(row))
    with pytest.raises(ValueError, match=f"y of sequence {broken} break the constraints"):
        ChainCRF("linear", constraints=pairs, engine=Inline(forgetful=False), C=1.0).fit(X, y)


def test_parts_of_different_kinds_are_refused(text, vectors):
    parts = SequenceSources([partial(RawSequences, *text), partial(RawSequences, *vectors)])
    with pytest.raises(ValueError, match="feature dicts in one part and arrays of numbers in another"):
        ChainCRF("linear", engine=Inline(), C=1.0).fit(parts)
    wide = partial(RawSequences, [np.zeros((2, 5))], [["up", "down"]])
    with pytest.raises(ValueError, match="3 features in one part and 5 features in another"):
        ChainCRF("linear", engine=Inline(), C=1.0).fit(SequenceSources([partial(RawSequences, *vectors), wide]))


def test_parts_without_tokens_or_labels_are_refused(text):
    with pytest.raises(ValueError, match="no token"):
        ChainCRF("linear", engine=Inline(), C=1.0).fit(SequenceSources([partial(RawSequences, [], [])]))
    with pytest.raises(ValueError, match="y is None in a part"):
        ChainCRF("linear", engine=Inline(), C=1.0).fit(SequenceSources([partial(RawSequences, text[0])]))
    with pytest.raises(ValueError, match="expected X to provide labels and weights"):
        ChainCRF("linear", engine=Inline(), C=1.0).fit(SequenceSources([partial(RawSequences, *text)]), text[1])


def test_a_sequence_cut_between_parts_is_named():
    parts = [
        partial(RawSequences, [[["a"]]], [["x"]], ends=("s1", "s2")),
        partial(RawSequences, [[["b"]]], [["y"]], ends=("s2", "s3")),
    ]
    with pytest.raises(ValueError, match="sequence 's2' is in two files or parts"):
        ChainCRF("linear", engine=Inline(), C=1.0).fit(SequenceSources(parts))


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_gamma_by_scale_is_that_of_all_parts(form):
    rng = np.random.default_rng(0)
    X = 1e6 + rng.normal(size=(50, 3))
    if form is sp.csr_array:
        X *= rng.random(size=X.shape) < 0.5
    rows, labels = [form(X[:20]), form(X[20:20]), form(X[20:])], [["a", "b"] * 10, [], ["a", "b"] * 15]
    data = read_sequence_parts(rows, labels, None, None, Inline(), SequencePartReader(), lambda is_sparse: (5, 5))
    assert data.by_scale(TOKENS) == pytest.approx(1 / (3 * X.var()), rel=1e-9)


def test_runs_are_even_and_whole():
    for tokens, n in (([5] * 12, 4), ([1, 100, 1, 1], 3), ([7], 3), ([0, 5, 5], 2)):
        runs = split_evenly(tokens, n)
        assert [k for run in runs for k in run] == list(range(len(tokens)))
        assert all(len(run) for run in runs)
        assert len(runs) <= n
    assert [len(run) for run in split_evenly([5] * 12, 4)] == [3, 3, 3, 3]


def test_inputs_on_which_the_kernel_is_zero_are_named():
    X, y = [np.zeros((4, 2))] * 5, [["a", "b", "a", "b"]] * 5
    for engine in (None, Inline(forgetful=False)):
        with pytest.raises(ValueError, match=r"k\(x, x\) = 0 for every input"):
            ChainCRF(Polynomial(coef0=0.0), gamma=1.0, engine=engine, C=1.0).fit(X, y)


def test_a_frame_of_vectors_may_have_an_empty_sequence():
    frame = pd.DataFrame({"vectors": [[[1.0, 2.0], [3.0, 4.0]], []], "labels": [["a", "b"], []]})
    first, second = _read_frame(frame, "labels").X
    np.testing.assert_array_equal(first, [[1.0, 2.0], [3.0, 4.0]])
    assert second.shape == (0, 2)


def test_what_is_no_engine_is_named(text):
    with pytest.raises(TypeError, match=r"engine='dask': expected None or a kernelcrf.distributed.DaskEngine"):
        ChainCRF("linear", engine="dask", C=1.0).fit(*text)


def test_a_set_of_one_label_counts_as_this_label_on_a_cluster():
    X = [[["a"], ["b"]], [["a"], ["b"]], [["c"], ["a"]], [["b"], ["c"]]]
    y = [["A", {"B"}], [{"B"}, {"B"}], ["A", "A"], ["A", "B"]]
    crf = ChainCRF("linear", C=1.0, class_weight="balanced", tol=1e-9)
    here, there = (clone(crf).set_params(engine=engine).fit(X, y) for engine in (None, Inline()))
    assert there.certificate_.objective == pytest.approx(here.certificate_.objective, rel=1e-8)


def test_masked_labels_are_missing_on_a_cluster():
    X = list(np.random.default_rng(0).normal(size=(6, 3, 1)))
    y = np.ma.masked_array(np.tile([0, 1, 0], (6, 1)), np.tile([False, False, True], (6, 1)))
    crf = ChainCRF("linear", C=1.0, engine=Inline()).fit(X, y)
    assert crf.classes_.tolist() == [0, 1]


def test_chunks_that_cut_sequences_are_refused():
    da = pytest.importorskip("dask.array")
    X, y = np.zeros((4, 6, 1)), np.tile([0, 1, 0, 1, 0, 1], (4, 1))
    crf = ChainCRF("linear", C=1.0, engine=Inline())
    with pytest.raises(ValueError, match=r"chunks .* which cut sequences"):
        crf.fit(da.from_array(X, chunks=(2, 3, 1)), da.from_array(y, chunks=(2, 3)))


def test_no_parts_are_named():
    with pytest.raises(ValueError, match="X has no parts"):
        ChainCRF("linear", engine=Inline()).fit(SequenceSources([]))
