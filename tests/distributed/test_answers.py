"""Labels and probabilities of Dask collections, whose partitions Dask's threads label."""

from functools import partial

import numpy as np
import pandas as pd
import pytest

from kernelcrf import ChainCRF, GraphCRF, Input, KernelClassifier, MultiLabelCRF, SegmentCRF
from kernelcrf.distributed import RawSequences, SequenceSources

dask = pytest.importorskip("dask")
da, db = pytest.importorskip("dask.array"), pytest.importorskip("dask.bag")
dd = pytest.importorskip("dask.dataframe")

WORDS = [[["w=a"], ["w=b"]], [["w=b"]], [["w=b"], ["w=a"], ["w=a"]]] * 4
TAGS = [[token[0][2:].upper() for token in x] for x in WORDS]


@pytest.fixture(autouse=True)
def threads():
    """Compute in threads, also if another test has left a client of a cluster."""
    with dask.config.set(scheduler="threads"):
        yield


@pytest.fixture(scope="module")
def crf():
    return ChainCRF("linear", C=10.0, laplace=True).fit(WORDS, TAGS)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    return X, np.where(X[:, 0] > 0, "yes", "no")


@pytest.fixture(scope="module")
def classifier(rows):
    return KernelClassifier(n_components=10, random_state=0).fit(*rows)


def equal(found, expected):
    assert len(found) == len(expected)
    for own, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(own, other)


@pytest.mark.parametrize("method", ["predict", "predict_proba"])
def test_answers_about_sequences_are_a_bag(crf, method):
    expected = getattr(crf, method)(WORDS)
    bag = getattr(crf, method)(db.from_sequence(WORDS, npartitions=3))
    assert isinstance(bag, db.Bag)
    equal(bag.compute(), expected)
    with dask.config.set({"dataframe.convert-string": False}):
        frame = dd.from_pandas(pd.DataFrame({"features": WORDS, "other": 1}), npartitions=2)
        equal(getattr(crf, method)(frame).compute(), expected)
    cuts = [WORDS[:5], WORDS[5:]]
    for X in (
        list(map(dask.delayed, cuts)),
        SequenceSources([partial(RawSequences, X=cut) for cut in cuts]),
    ):
        answers = dask.compute(*getattr(crf, method)(X))
        equal([row for part in answers for row in part], expected)


def test_options_travel(crf):
    bag = db.from_sequence(WORDS, npartitions=2)
    options = {"posterior": "laplace", "n_samples": 5, "random_state": 3}
    here = [crf.predict_proba(part, **options) for part in (WORDS[:6], WORDS[6:])]
    equal(crf.predict_proba(bag, **options).compute(), [row for part in here for row in part])


def test_segments_of_a_bag(crf):
    segments = SegmentCRF("linear", C=10.0, max_duration=2).fit(WORDS, TAGS)
    equal(segments.predict(db.from_sequence(WORDS, npartitions=2)).compute(), segments.predict(WORDS))


def test_scores_count_the_right_labels_of_all_partitions(crf):
    y = [[None if k == 3 else label for k, label in enumerate(row)] for row in TAGS]
    y[0], y[-1] = ["B", "B"], [None] * len(y[-1])
    expected = crf.score(WORDS, y)
    assert 0.5 < expected < 1
    bags = [db.from_sequence(part, npartitions=3) for part in (WORDS, y)]
    assert crf.score(*bags) == pytest.approx(expected)
    cuts, weights = [slice(0, 5), slice(5, 12)], np.linspace(0, 2, 12)
    sources = SequenceSources([partial(RawSequences, WORDS[cut], y[cut], weights[cut]) for cut in cuts])
    assert crf.score(sources) == pytest.approx(crf.score(WORDS, y, weights))
    with dask.config.set({"dataframe.convert-string": False}):
        frame = dd.from_pandas(pd.DataFrame({"features": WORDS, "tags": TAGS}), npartitions=2)
        assert crf.score(frame, "tags") == crf.score(WORDS, TAGS)
    with pytest.raises(ValueError, match="no known label"):
        crf.score(bags[0], db.from_sequence([[None] * len(x) for x in WORDS], npartitions=3))


def test_scores_of_rows(rows, classifier):
    X, y = rows
    y, weights = np.where(np.arange(40) % 7 == 0, "no", y), np.arange(40) % 3
    arrays = [da.from_array(one, chunks=chunks) for one, chunks in ((X, (15, 3)), (y, 15), (weights, 15))]
    assert classifier.score(*arrays[:2]) == pytest.approx(classifier.score(X, y))
    assert classifier.score(*arrays) == pytest.approx(classifier.score(X, y, weights))
    frame = dd.from_pandas(pd.DataFrame(X, columns=list("abc")).assign(y=y), npartitions=2)
    named = KernelClassifier(n_components=10, random_state=0).fit(pd.DataFrame(X, columns=list("abc")), rows[1])
    assert named.score(frame, "y") == pytest.approx(named.score(pd.DataFrame(X, columns=list("abc")), y))


def test_distributions_of_a_bag_answer_lazily(crf):
    here, there = (crf.distribution(X) for X in (WORDS, db.from_sequence(WORDS, npartitions=3)))
    assert there.spans(scheme="runs").compute() == list(here.spans(scheme="runs"))
    assert there.spans(scheme="runs", n_best=1).compute() == list(here.spans(scheme="runs", n_best=1))
    assert there.labelled_marginals().compute() == list(here.labelled_marginals())
    np.testing.assert_allclose(there.entropy().compute(), here.entropy())
    equal(there.decode("marginal").compute(), here.decode("marginal"))
    equal(there.marginals().compute(), here.marginals())
    equal([best[0][0] for best in there.k_best(2).compute()], [best[0][0] for best in here.k_best(2)])
    segments = SegmentCRF("linear", C=10.0, max_duration=2).fit(WORDS, TAGS)
    (one,) = dask.compute(*segments.distribution([dask.delayed(WORDS)]).spans())
    assert one == list(segments.distribution(WORDS).spans())
    with pytest.raises(ValueError, match="compares the spans of all sequences"):
        there.spans(rule="f1")


def test_a_refit_does_not_change_answers_that_were_asked_for_before():
    model = ChainCRF("linear", C=10.0).fit(WORDS, TAGS)
    before, bag = model.predict(WORDS), model.predict(db.from_sequence(WORDS))
    model.fit(WORDS, [["A"] * len(x) for x in WORDS[:-1]] + [["B"] * len(WORDS[-1])])
    equal(bag.compute(), before)


@pytest.mark.parametrize("method", ["predict", "predict_proba"])
def test_answers_about_rows_are_an_array(rows, classifier, method):
    X, _ = rows
    expected = getattr(classifier, method)(X)
    array = getattr(classifier, method)(da.from_array(X, chunks=(15, 3)))
    assert isinstance(array, da.Array)
    assert (array.shape, array.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(array.compute(), expected) if method == "predict_proba" else equal(
        array.compute(), expected
    )
    frame = dd.from_pandas(pd.DataFrame(X), npartitions=2)
    of_frame = getattr(classifier, method)(frame).compute()
    assert of_frame.shape == expected.shape
    (one,) = dask.compute(*getattr(classifier, method)([dask.delayed(X)]))
    equal(one, expected)


def test_answers_about_label_sets(rows):
    X, _ = rows
    Y = (X > 0.3).astype(int)
    model = MultiLabelCRF("linear", structure="tree").fit(X, Y)
    Y[::5, 0] = 1 - Y[::5, 0]
    arrays = [da.from_array(one, chunks=(15, 3)) for one in (X, Y)]
    expected = model.score(X, Y)
    assert 0.5 < expected < 1
    assert model.score(*arrays) == pytest.approx(expected)
    equal(model.predict(arrays[0]).compute(), model.predict(X))
    np.testing.assert_allclose(model.predict_proba(arrays[0]).compute(), model.predict_proba(X))


def test_answers_about_graphs():
    edges = [[0, 1], [1, 2]]
    X = [(np.array([[k % 2], [1.0], [0.0]]), edges) for k in range(8)]
    y = [["a" if value else "b" for value in features[:, 0]] for features, _ in X]
    model = GraphCRF("linear").fit(X, y)
    y[0], y[-1] = ["a", "a", "a"], [None] * 3
    bags = [db.from_sequence(part, npartitions=4) for part in (X, y)]
    expected = model.score(X, y)
    assert 0.5 < expected < 1
    assert model.score(*bags) == pytest.approx(expected)
    equal(model.predict(bags[0]).compute(), model.predict(X))
    for own, other in zip(model.predict_proba(bags[0]).compute(), model.predict_proba(X), strict=True):
        np.testing.assert_allclose(own, other)


def test_answers_about_entries():
    X = [{"words": x, "ones": np.ones((len(x), 1))} for x in WORDS]
    crf = ChainCRF(inputs={"words": Input("linear"), "ones": Input("linear")}, C=10.0).fit(X, TAGS)
    bags = [db.from_sequence(part, npartitions=3) for part in (X, TAGS)]
    assert crf.score(*bags) == 1
    equal(crf.predict(bags[0]).compute(), crf.predict(X))


def test_what_cannot_be_answered_in_parts_is_named(crf, classifier, rows):
    bag = db.from_sequence(WORDS)
    tagged = ChainCRF("linear", C=1.0, decoding="f1").fit(WORDS, [["B-X"] * len(x) for x in WORDS[:-1]] + [["O"] * 3])
    with pytest.raises(ValueError, match="decoding='f1' compares the spans of all sequences"):
        tagged.predict(bag)
    with pytest.raises(ValueError, match="lengths cannot be combined with data on a cluster"):
        crf.predict(bag, [1, 2])
    with pytest.raises(ValueError, match="base_scores cannot be combined with data on a cluster"):
        classifier.predict(da.from_array(rows[0]), base_scores=np.zeros((40, 2)))
    with pytest.raises(ValueError, match="either a column 'features' or a column 'vectors'"):
        crf.predict(dd.from_pandas(pd.DataFrame({"other": [1]}), npartitions=1)).compute()
    with pytest.raises(ValueError, match="not fitted"):
        ChainCRF().predict(bag)
