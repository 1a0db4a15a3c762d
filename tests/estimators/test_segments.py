"""SegmentCRF: equalities with ChainCRF and enumeration, kinds of labels, files, and all that a fitted model answers."""

import itertools

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from kernelcrf import ChainCRF, ConformalSpans, SegmentCRF, TemperatureScaling, load, make_report
from kernelcrf.fitting.laplace import laplace
from kernelcrf.inference.feasibility import InfeasibleSequenceError
from kernelcrf.metrics import spans


def sequences(n=12, seed=0, n_labels=2, low=3, high=6):
    rng = np.random.default_rng(seed)
    y = []
    for _ in range(n):
        labels, before = [], -1
        for _ in range(4):
            before = int(rng.choice([a for a in range(n_labels) if a != before]))
            labels += [before] * int(rng.integers(low, high))
        y.append(np.array(labels))
    X = [np.column_stack([own, own == 1]) + rng.normal(size=(len(own), 2)) for own in y]
    return X, y


X, Y = sequences()
TIGHT = {"C": 3.0, "tol": 1e-10, "random_state": 0}
SENTENCES = [
    ("the dog of Ann Lee barks", "O O O B-PER I-PER O"),
    ("Bob Ann and Cy", "B-PER B-PER O B-PER"),
    ("in New York City", "O B-LOC I-LOC I-LOC"),
]
WORDS = [[{"word": w, "upper": w[0].isupper()} for w in text.split()] for text, _ in SENTENCES]
TAGS = [tags.split() for _, tags in SENTENCES]


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("extra", [{}, {"fit_intercept": "boundaries"}], ids=["plain", "constants"])
def test_durations_without_scores_and_a_tail_from_the_first_token_are_a_chain(kernel, extra):
    chain = ChainCRF(kernel, n_components=15, **TIGHT, **extra).fit(X, Y)
    found = SegmentCRF(kernel, n_components=15, max_duration=1, durations=None, ends=False, **TIGHT, **extra).fit(X, Y)
    assert found.certificate_.objective == pytest.approx(chain.certificate_.objective, rel=1e-9)
    np.testing.assert_allclose(np.vstack(found.predict_proba(X)), np.vstack(chain.predict_proba(X)), atol=1e-4)
    np.testing.assert_allclose(found.tail_scores_, np.diagonal(chain.transitions_), atol=1e-3)
    np.testing.assert_allclose(found.log_prob(X, Y), chain.log_prob(X, Y), atol=1e-3)
    np.testing.assert_allclose(found.distribution(X).entropy(), chain.distribution(X).entropy(), atol=1e-3)


def test_segments_of_one_token_are_a_chain():
    y = [[(t, t + 1, str(label)) for t, label in enumerate(own)] for own in Y]
    chain = ChainCRF("linear", **TIGHT).fit(X, [own.astype(str) for own in Y])
    found = SegmentCRF("linear", max_duration=1, tail=False, durations=None, ends=False, **TIGHT).fit(X, y)
    assert found.segment_labels_ == ["0", "1"]
    assert found.certificate_.objective == pytest.approx(chain.certificate_.objective, rel=1e-9)
    np.testing.assert_allclose(found.transitions_, chain.transitions_, atol=1e-3)
    order = [list(found.classes_).index(f"B-{label}") for label in "01"]
    np.testing.assert_allclose(found.predict_proba(X)[0][:, order], chain.predict_proba(X)[0], atol=1e-4)


MODELS = {
    "smooth": {"ends": False},
    "free": {"durations": "free"},
    "pooled": {"segment_kernel": "rbf", "max_duration": 3, "ends": False},
    "no tail": {"tail": False, "segment_kernel": "linear", "pooling": "ends"},
    "constraints": {"constraints": [(0, 1), (1, 0), (None, 0)]},
}


@pytest.fixture(params=MODELS, scope="module")
def fitted(request):
    y = Y
    if request.param == "constraints":
        y = [np.concatenate([[0], own]) for own in Y]
    data = [np.vstack([np.zeros((len(own) - len(x), 2)), x]) for x, own in zip(X, y, strict=True)]
    return SegmentCRF("rbf", n_components=10, C=3.0, laplace=True, random_state=0, **MODELS[request.param]).fit(data, y)


def test_all_answers_agree_with_the_probabilities_of_all_labellings(fitted):
    x = [X[0][:6]]
    every = [np.array(y) for y in itertools.product(fitted.classes_, repeat=6)]
    with np.errstate(divide="ignore"):
        log_p = fitted.log_prob(x * len(every), every)
    p = np.exp(log_p)
    assert p.sum() == pytest.approx(1, abs=1e-10)
    expected = sum(p[k] * (own[:, None] == fitted.classes_) for k, own in enumerate(every))
    np.testing.assert_allclose(fitted.predict_proba(x)[0], expected, atol=1e-10)
    best = np.argsort(-p, kind="stable")
    np.testing.assert_array_equal(fitted.predict(x)[0], every[best[0]])
    ranked = fitted.distribution(x).k_best(5)[0]
    np.testing.assert_allclose([own for _, own in ranked], log_p[best[: len(ranked)]], atol=1e-10)
    assert fitted.distribution(x).entropy()[0] == pytest.approx(-(p[p > 0] * np.log(p[p > 0])).sum(), abs=1e-9)
    for span in fitted.distribution(x).spans(threshold=0.01)[0]:
        inside = [set(own[span.start : span.end]) == {span.label} for own in every]
        before = [span.start == 0 or own[span.start - 1] != span.label for own in every]
        after = [span.end == 6 or own[span.end] != span.label for own in every]
        assert span.probability == pytest.approx(p[np.array(inside) & before & after].sum(), abs=1e-10)
        given = fitted.distribution(x).span_marginals([[span[:3]]])[0]
        assert given == pytest.approx([span.probability])
    missing = [[None, None, 1, None, None, None]]
    known = np.array([own[2] == 1 for own in every])
    assert fitted.log_prob(x, missing)[0] == pytest.approx(np.log(p[known].sum()), abs=1e-10)
    draws = fitted.distribution(x).sample(3000, random_state=0)[0]
    np.testing.assert_allclose((draws == 1).mean(axis=0), fitted.predict_proba(x)[0][:, 1], atol=0.05)
    why = fitted.explain(x[0], 2, label=1)
    assert why.p == pytest.approx(p[known].sum(), abs=1e-10)


def test_a_file_restores_the_model(fitted, tmp_path):
    fitted.save(tmp_path / "model.kcrf")
    again = load(tmp_path / "model.kcrf")
    assert type(again) is SegmentCRF
    np.testing.assert_array_equal(again.predict_proba(X)[0], fitted.predict_proba(X)[0])
    np.testing.assert_array_equal(again.duration_scores_, fitted.duration_scores_)
    one, other = (np.concatenate(crf.uncertainty(X[:2], n_samples=5).epistemic) for crf in (again, fitted))
    np.testing.assert_array_equal(one, other)
    assert again.log_marginal_likelihood() == fitted.log_marginal_likelihood()
    assert again.get_params()["durations"] == fitted.durations


def test_spans_of_the_likeliest_segmentation_have_its_labels(fitted):
    for found, labels in zip(fitted.distribution(X).spans(), fitted.predict(X), strict=True):
        assert [label for span in found for label in [span.label] * (span.end - span.start)] == labels.tolist()
        assert all(0 <= span.probability <= 1 for span in found)
    best = fitted.distribution(X).spans(n_best=2)
    every = fitted.distribution(X).spans(threshold=0.001)
    for few, many in zip(best, every, strict=True):
        top = sorted((span.probability for span in many), reverse=True)[:2]
        assert [span.probability for span in few] == pytest.approx(top)


def test_the_evidence_is_that_of_the_dense_hessian():
    crf = SegmentCRF("linear", C=2.0, laplace=True, tol=1e-10).fit(X, Y)
    model = crf.model_
    from kernelcrf.fitting.corpus import Problem
    from kernelcrf.fitting.fit import Settings, fit
    from kernelcrf.fitting.segments import LabelledSegments
    from kernelcrf.graphs.structure import Chains

    chains = Chains.from_lengths(list(map(len, Y)))
    data = LabelledSegments(
        np.vstack(X), chains, np.concatenate(Y).astype(np.int32), 2, spec=model.spec, longest=model.longest
    )
    fitted = fit(Problem(model.layout.terms, data), Settings(tol=1e-10))
    at = fitted.objective.evaluate(fitted.theta, curvature=True)
    n = len(fitted.theta)
    H = np.column_stack([fitted.objective.hessian_product(at, row) for row in np.eye(n)])
    np.testing.assert_allclose(H, H.T, atol=1e-8)
    lam = np.concatenate([np.full(term.size, 1 / term.C) for term in fitted.layout.terms])
    expected = -at.value - 0.5 * np.linalg.slogdet(H)[1] + 0.5 * np.log(lam).sum()
    assert crf.log_marginal_likelihood() == pytest.approx(expected, abs=1e-6)
    assert laplace(fitted.objective, at, n_draws=0).log_evidence == pytest.approx(expected, abs=1e-6)


def test_tags_are_read_and_predicted_as_segments():
    crf = SegmentCRF(C=100.0).fit(WORDS, TAGS)
    assert crf.segment_labels_ == ["LOC", "PER", "O"]
    assert [own.tolist() for own in crf.predict(WORDS)] == TAGS
    spans = [[(span.start, span.end, span.label) for span in own] for own in crf.distribution(WORDS).spans()]
    assert spans == [[(3, 5, "PER")], [(0, 1, "PER"), (1, 2, "PER"), (3, 4, "PER")], [(1, 4, "LOC")]]
    same = SegmentCRF(C=100.0).fit(WORDS, spans)
    np.testing.assert_array_equal(same.predict_proba(WORDS)[0], crf.predict_proba(WORDS)[0])
    np.testing.assert_array_equal(same.log_prob(WORDS, spans), crf.log_prob(WORDS, TAGS))
    np.testing.assert_allclose(np.vstack(crf.predict_proba(WORDS)).sum(axis=1), 1, atol=1e-12)
    # An I without a segment is read as a B.
    assert crf.log_prob(WORDS[2:], [["O", "I-LOC", "I-LOC", "I-LOC"]]) == pytest.approx(
        crf.log_prob(WORDS[2:], TAGS[2:])
    )
    every = list(itertools.product(crf.classes_, repeat=3))
    legal = [y for y in every if all(b[0] != "I" or a[2:] == b[2:] for a, b in itertools.pairwise(("O", *y)))]
    p = np.exp(crf.log_prob([WORDS[0][:3]] * len(legal), legal))
    assert p.sum() == pytest.approx(1, abs=1e-10)


def test_lists_of_segments_without_gaps_are_labels_of_tokens():
    y = [[tuple(span) for span in spans(own.tolist(), "runs")] for own in Y]
    found, expected = (SegmentCRF("linear", C=1.0).fit(X, own) for own in (y, Y))
    np.testing.assert_array_equal(found.predict_proba(X)[0], expected.predict_proba(X)[0])
    assert found.score(X, y) == expected.score(X, Y)


def test_a_function_describes_segments():
    def describe(x, start, end):
        return {"words": " ".join(token["word"] for token in x[start:end]), "length": min(end - start, 4)}

    crf = SegmentCRF(C=10.0, segment_kernel="linear", pooling=describe, max_duration=3).fit(WORDS, TAGS)
    assert [own.tolist() for own in crf.predict(WORDS)] == TAGS
    assert crf.segment_coef_.shape[1] == 3
    with pytest.raises(ValueError, match="expected a fitted ChainCRF"):
        ChainCRF(prior=crf).fit(WORDS, TAGS)
    with pytest.raises(TypeError, match="pooling is a function"):
        crf.save("unused.kcrf")
    with pytest.raises(ValueError, match="lengths was passed"):
        crf.predict([token for own in WORDS for token in own], lengths=[len(own) for own in WORDS])


def test_missing_labels_are_summed_out():
    rng = np.random.default_rng(0)
    y = [[None if rng.random() < 0.3 else int(label) for label in own] for own in Y]
    crf = SegmentCRF("linear", C=3.0).fit(X, y)
    assert crf.certificate_.status == "stationary"
    assert crf.certificate_.lower_bound == -np.inf
    assert crf.score(X, Y) > 0.8


def test_scikit_learn_can_search_and_clone_it():
    search = GridSearchCV(SegmentCRF("linear", C=1.0), {"max_duration": [2, None], "C": [0.1, 10.0]}, cv=2).fit(X, Y)
    assert search.best_score_ > 0.7
    assert clone(search.best_estimator_).get_params() == search.best_estimator_.get_params()


def test_a_warm_start_ends_at_once_and_flat_data_give_the_same_fit():
    crf = SegmentCRF(
        "rbf", C=1.0, n_components=10, random_state=0, warm_start=True, segment_kernel="rbf", max_duration=3
    )
    first = clone(crf).fit(X, Y)
    n_iter = crf.fit(X, Y).n_iter_
    assert crf.fit(X, Y).n_iter_ < n_iter / 4
    flat = clone(crf).fit(np.vstack(X), np.concatenate(Y), lengths=[len(x) for x in X])
    np.testing.assert_array_equal(flat.predict_proba(X)[0], first.predict_proba(X)[0])


def test_weights_and_rules_for_C():
    twice = SegmentCRF("linear", C=1.0, tol=1e-9).fit([*X, X[0]], [*Y, Y[0]])
    weighted = SegmentCRF("linear", C=1.0, tol=1e-9).fit(X, Y, sample_weight=[2, *[1] * (len(X) - 1)])
    np.testing.assert_allclose(weighted.duration_scores_, twice.duration_scores_, atol=1e-3)
    assert weighted.certificate_.objective == pytest.approx(twice.certificate_.objective, rel=1e-8)
    for rule in ("auto", "evidence"):
        assert 1e-4 < SegmentCRF("linear", C=rule, random_state=0).fit(X, Y).C_ < 1e5


def test_the_gap_in_the_whole_space_covers_all_landmarks():
    few = SegmentCRF("rbf", C=1.0, n_components=4, certify_full=True, random_state=0).fit(X, Y)
    every = SegmentCRF("rbf", C=1.0, n_components=None, tol=1e-8).fit(X, Y)
    least = every.certificate_.objective
    assert few.certificate_.objective - few.certificate_.gap_full <= least <= few.certificate_.objective
    grown = SegmentCRF(
        "rbf", C=1.0, n_components="auto", tol=1e-3, random_state=0, segment_kernel="rbf", max_duration=2
    )
    assert grown.fit(X, Y).certificate_.status == "optimal"


def test_probabilities_can_be_calibrated_and_become_sets():
    crf = SegmentCRF("linear", C=10.0).fit(X, Y)
    new_X, new_y = sequences(80, seed=1)
    sets = ConformalSpans(crf, confidence_level=0.8).conformalize(new_X[:40], new_y[:40])
    found = [{span[:3] for span in own} for own in sets.predict_set(new_X[40:])]
    truth = [{tuple(span) for span in spans(own.tolist(), "runs")} for own in new_y[40:]]
    share = np.mean([len(one & other) / len(other) for one, other in zip(found, truth, strict=True)])
    assert 0.7 < share < 0.95
    for likelihood in ("labelling", "span"):
        scaled = TemperatureScaling(crf, likelihood=likelihood).fit(new_X[:40], new_y[:40])
        assert 0.5 < scaled.temperature_ < 3


def test_a_report_describes_it():
    crf = SegmentCRF("linear", C=1.0).fit(X, Y)
    html = make_report(crf, X, Y, title="Segments")
    assert "Segments" in html
    assert "certified" in html
    assert "optimal" in crf._repr_html_()


@pytest.mark.parametrize(
    ("options", "y", "text"),
    [
        ({"tail": False, "max_duration": 2}, Y, "has a segment of 5 tokens in sequence .*max_duration=2"),
        ({"constraints": [(0, 1)]}, Y, "break the constraints at the segment of label"),
        ({}, [[(0, 3, "a"), (2, 5, "b")], *[[(0, 1, "a")]] * 11], r"y\[0\] has the segment .*do not overlap"),
        ({}, [[(0, 3, 1)], *[[(0, 1, 0)]] * 11], "has a segment with the label 1: expected strings"),
        ({}, [["B-x", "E-x"]] * 12, "has the tag 'E-x': expected IOB2"),
        ({"durations": "geometric"}, Y, "durations='geometric': expected"),
        ({"pooling": "median"}, Y, "pooling='median': expected"),
        ({"pooling": "max"}, Y, "pooling='max' cannot be combined with segment_kernel=None"),
    ],
)
def test_what_cannot_be_is_refused(options, y, text):
    data = X if y is Y else [np.zeros((5 if isinstance(own[0], tuple) else len(own), 2)) for own in y]
    with pytest.raises(ValueError, match=text):
        SegmentCRF("linear", **options).fit(data, y)


def test_a_sequence_without_a_possible_segmentation_is_named():
    crf = SegmentCRF("linear", C=1.0, tail=False, constraints=[(0, 1), (None, 0), (1, None)])
    crf.fit([np.zeros((4, 1)), np.ones((4, 1))], [[0, 0, 1, 1]] * 2)
    with pytest.raises(InfeasibleSequenceError, match="sequence 1"):
        crf.predict([np.zeros((4, 1)), np.zeros((9, 1))])


def test_an_entity_cannot_have_the_name_of_the_outside():
    X, y = [np.eye(3), np.eye(3)], [["B-O", "I-O", "O"], ["B-P", "O", "O"]]
    with pytest.raises(ValueError, match="tags of the type 'O'"):
        SegmentCRF("linear", C=1.0).fit(X, y)
