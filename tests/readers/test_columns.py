"""Names of columns: kept by `fit` and in files, matched by name in sequences, refused as scikit-learn refuses them."""

from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import kernelcrf
from clusters import Inline
from kernelcrf import ChainCRF, GraphCRF, Input, KernelClassifier, MarkovNetwork, MultiLabelCRF, SegmentCRF
from kernelcrf.distributed import RawSequences, SequenceSources
from kernelcrf.preprocessing import PerToken

RNG = np.random.default_rng(0)
Y = [RNG.integers(2, size=length) for length in (5, 8, 3, 6)]
X = [np.column_stack((labels + 0.3 * RNG.normal(size=len(labels)), RNG.normal(size=len(labels)))) for labels in Y]
LIBRARIES = {
    "pandas": lambda x, names: pd.DataFrame(x, columns=names),
    "polars": lambda x, names: pl.DataFrame(x, schema=names),
    "arrow": lambda x, names: pa.table(dict(zip(names, x.T, strict=True))),
}
libraries = pytest.mark.parametrize("library", LIBRARIES.values(), ids=LIBRARIES)


def framed(library, *names, columns=(0, 1)):
    return [library(x[:, list(columns)], list(names)) for x in X]


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@libraries
def test_columns_are_matched_by_name_also_after_loading(library, tmp_path):
    frames, turned = framed(library, "speed", "turn"), framed(library, "turn", "speed", columns=(1, 0))
    crf, expected = ChainCRF("linear", C=1.0).fit(frames, Y), ChainCRF("linear", C=1.0).fit(X, Y).predict_proba(X)
    assert crf.feature_names_in_.tolist() == ["speed", "turn"]
    crf.save(tmp_path / "m.kcrf")
    for model in (crf, kernelcrf.load(tmp_path / "m.kcrf"), ChainCRF("linear", C=1.0).fit([frames[0], *turned[1:]], Y)):
        assert model.feature_names_in_.tolist() == ["speed", "turn"]
        assert same(model.predict_proba(frames), expected)
        assert same(model.predict_proba([turned[0], *frames[1:]]), expected)
    assert crf.explain(turned[0], 1).terms[0] in ("speed", "turn")
    joined = np.concatenate(X)
    flat = library(joined[:, ::-1], ["turn", "speed"])
    assert same(crf.predict_proba(flat, lengths=[len(x) for x in X]), expected)


@libraries
def test_other_columns_are_refused_as_in_scikit_learn(library):
    frames, other = framed(library, "speed", "turn"), framed(library, "speed", "brake")
    crf = ChainCRF("linear", C=1.0).fit(frames, Y)
    expected = r"X\[1\]: The feature names should match .* unseen at fit time: - brake .* yet now missing: - turn"
    with pytest.raises(ValueError, match=expected):
        crf.predict([frames[0], other[1]])
    with pytest.raises(ValueError, match="yet now missing: - turn"):
        crf.predict(framed(library, "speed", columns=(0,)))
    with pytest.raises(ValueError, match="unseen at fit time: - brake"):
        crf.predict(framed(library, "speed", "turn", "brake", columns=(0, 1, 1)))
    with pytest.raises(ValueError, match=r"only X\[2\] has 'brake' and only X\[0\] has 'turn'\): expected the same"):
        ChainCRF("linear", C=1.0).fit([*frames[:2], *other[2:]], Y)
    with pytest.raises(ValueError, match=r"X\[1\] and X\[0\] have different column names \(only X\[0\] has 'speed'"):
        ChainCRF("linear", C=1.0).fit([frames[0], *X[1:]], Y)


def test_names_on_one_side_only_are_a_warning():
    frames = framed(LIBRARIES["pandas"], "speed", "turn")
    named, unnamed = ChainCRF("linear", C=1.0).fit(frames, Y), ChainCRF("linear", C=1.0).fit(X, Y)
    assert not hasattr(unnamed, "feature_names_in_")
    with pytest.warns(UserWarning, match="X does not have valid feature names, but ChainCRF was fitted with") as caught:
        assert same(named.predict_proba(X), unnamed.predict_proba(X))
    assert len(caught) == 1
    with pytest.warns(UserWarning, match="X has feature names, but ChainCRF was fitted without feature names"):
        unnamed.predict(frames)
    assert not hasattr(ChainCRF("linear", C=1.0).fit([pd.DataFrame(x) for x in X], Y), "feature_names_in_")


def test_empty_sequences_need_no_columns():
    frames = [pd.DataFrame(), *framed(LIBRARIES["pandas"], "speed", "turn"), []]
    crf = ChainCRF("linear", C=1.0).fit(frames, [[], *Y, []])
    assert crf.feature_names_in_.tolist() == ["speed", "turn"]
    assert [len(labels) for labels in crf.predict(frames)] == [0, 5, 8, 3, 6, 0]


def test_parts_on_a_cluster_have_the_same_columns():
    frames = framed(LIBRARIES["pandas"], "speed", "turn")
    turned = [frame[["turn", "speed"]] for frame in frames]
    here = ChainCRF("linear", solver="lbfgs", tol=1e-9, C=1.0).fit(frames, Y)

    def fit_parts(*parts):
        sources = [partial(RawSequences, X=part, y=labels) for part, labels in zip(parts, (Y[:2], Y[2:]), strict=True)]
        return ChainCRF("linear", solver="lbfgs", tol=1e-9, engine=Inline(), C=1.0).fit(SequenceSources(sources))

    there = fit_parts(frames[:2], turned[2:])
    assert there.feature_names_in_.tolist() == ["speed", "turn"]
    np.testing.assert_allclose(there.coef_, here.coef_, atol=1e-6)
    with pytest.raises(ValueError, match=r"column names \['speed', 'turn'\] in one part and the column names"):
        fit_parts(frames[:2], framed(LIBRARIES["pandas"], "speed", "x")[2:])


def test_variables_of_a_table_keep_their_names(tmp_path):
    table = pd.DataFrame({"sky": ["grey", "blue"] * 20, "wet": [1, 0] * 20})
    model = MarkovNetwork(structure="full").fit(table)
    model.save(tmp_path / "m.kcrf")
    for one in (model, kernelcrf.load(tmp_path / "m.kcrf")):
        assert one.feature_names_in_.tolist() == ["sky", "wet"]
        with pytest.raises(ValueError, match="Feature names must be in the same order"):
            one.score_samples(table[["wet", "sky"]])
    assert not hasattr(MarkovNetwork().fit(table.to_numpy()), "feature_names_in_")


@libraries
def test_node_features_of_graphs_are_matched_by_name(library, tmp_path):
    def graphs(frames):
        return [(frame, edges(x)) for frame, x in zip(frames, X, strict=True)]

    frames, turned = framed(library, "speed", "turn"), framed(library, "turn", "speed", columns=(1, 0))
    crf = GraphCRF("linear").fit(graphs(frames), Y)
    crf.save(tmp_path / "m.kcrf")
    for model in (crf, kernelcrf.load(tmp_path / "m.kcrf")):
        assert model.feature_names_in_.tolist() == ["speed", "turn"]
        assert same(model.predict_proba(graphs(turned)), crf.predict_proba(graphs(frames)))
        with pytest.raises(ValueError, match=r"X\[0\]\[0\]: The feature names should match .* - brake"):
            model.predict(graphs(framed(library, "speed", "brake")))
    with pytest.warns(UserWarning, match="X does not have valid feature names, but GraphCRF was fitted with"):
        crf.predict(graphs(X))
    chains = GraphCRF("linear").fit(frames, Y)
    assert same(chains.predict_proba(turned), chains.predict_proba(frames))


NAMES = {
    "the default": [0, 1],
    "integers": [7, 3],
    "floats": [0.5, np.inf],
    "dates": pd.to_datetime(["2020-01-02", "2020-01-01"]),
    "tuples": pd.MultiIndex.from_tuples([("speed", 1), ("speed", pd.Timestamp("2020-01-01"))]),
    "strings and others": ["speed", 1],
    "missing": [np.nan, 1.5],
}
names_of_any_type = pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)


def turn(frames):
    return [frame.iloc[:, ::-1] for frame in frames]


def edges(x):
    return [[t, t + 1] for t in range(len(x) - 1)]


@names_of_any_type
def test_names_of_any_type_are_matched_in_sequences_also_after_loading(names, tmp_path):
    frames = [pd.DataFrame(x, columns=names) for x in X]
    crf, expected = ChainCRF("linear", C=1.0).fit(frames, Y), ChainCRF("linear", C=1.0).fit(X, Y).predict_proba(X)
    assert not hasattr(crf, "feature_names_in_")
    crf.save(tmp_path / "m.kcrf")
    mixed = ChainCRF("linear", C=1.0).fit([frames[0], *turn(frames[1:])], Y)
    for model in (crf, kernelcrf.load(tmp_path / "m.kcrf"), mixed):
        assert same(model.predict_proba(frames), expected)
        assert same(model.predict_proba([*turn(frames[:2]), *frames[2:]]), expected)
        with pytest.raises(ValueError, match=r"X\[0\]: The feature names should match .* at fit time: - 98 - 99"):
            model.predict([frame.set_axis([99, 98], axis=1) for frame in frames])
    with pytest.raises(ValueError, match=r"X\[3\] and X\[0\] have different column names"):
        ChainCRF("linear", C=1.0).fit([*frames[:3], frames[3].set_axis([99, 98], axis=1)], Y)


@names_of_any_type
def test_names_of_any_type_are_matched_by_segments_inputs_graphs_and_transformers(names, tmp_path):
    frames = [pd.DataFrame(x, columns=names) for x in X]
    inputs = ChainCRF(inputs={"both": Input("linear")}, C=1.0)
    scaled = make_pipeline(PerToken(StandardScaler()), ChainCRF("linear", C=1.0))
    # The transformers of scikit-learn refuse names some of which are strings.
    of_one_kind = len({isinstance(name, str) for name in names}) == 1
    for estimator in (SegmentCRF("linear", C=1.0), inputs, GraphCRF("linear"), *([scaled] if of_one_kind else [])):
        model = estimator.fit([frames[0], *turn(frames[1:])], Y)
        kernelcrf.save(model, tmp_path / "m.kcrf")
        expected = model.predict_proba(frames)
        assert same(expected, estimator.fit(X, Y).predict_proba(X))
        assert same(kernelcrf.load(tmp_path / "m.kcrf").predict_proba(turn(frames)), expected)
    graphs = [(x, edges(x), frame[1:]) for x, frame in zip(X, frames, strict=True)]
    turned = [(x, edges(x), frame[1:]) for x, frame in zip(X, turn(frames), strict=True)]
    model = GraphCRF("linear", edge_kernel="linear").fit([graphs[0], *turned[1:]], Y)
    model.save(tmp_path / "m.kcrf")
    assert same(kernelcrf.load(tmp_path / "m.kcrf").predict_proba(turned), model.predict_proba(graphs))
    with pytest.raises(ValueError, match=r"X\[0\]\[2\]: The feature names should match"):
        model.predict([(x, edges(x), frame[1:].set_axis([99, 98], axis=1)) for x, frame in zip(X, frames, strict=True)])


@names_of_any_type
def test_names_of_any_type_in_another_order_are_refused_in_a_table(names, tmp_path):
    frame, labels = pd.DataFrame(np.concatenate(X), columns=names), np.concatenate(Y)
    table = (frame > 0).astype(int)
    for estimator, rows, y in (
        (KernelClassifier("linear"), frame, labels),
        (MultiLabelCRF("linear"), frame, np.column_stack((labels, 1 - labels))),
        (MarkovNetwork(), table, None),
    ):
        model = estimator.fit(rows, y)
        model.save(tmp_path / "m.kcrf")
        for one in (model, kernelcrf.load(tmp_path / "m.kcrf")):
            answer = one.score_samples if y is None else one.predict_proba
            answer(rows)
            with pytest.raises(ValueError, match=r"X: The feature names should match .* in the same order"):
                answer(rows.iloc[:, ::-1])
            with pytest.raises(ValueError, match="yet now missing"):
                answer(rows.set_axis([99, 98], axis=1))


def test_the_positions_that_pandas_gives_by_default_are_those_of_an_array():
    frames, expected = [pd.DataFrame(x) for x in X], ChainCRF("linear", C=1.0).fit(X, Y).predict_proba(X)
    for data in (frames, X, [X[0], *frames[1:]]):
        model = ChainCRF("linear", C=1.0).fit(data, Y)
        assert model.get_feature_names_out().tolist() == ["x0", "x1"]
        for asked in (X, frames, [X[0], *frames[1:]], turn(frames)):
            assert same(model.predict_proba(asked), expected)
    named = ChainCRF("linear", C=1.0).fit([frame.set_axis([7, 3], axis=1) for frame in frames], Y)
    assert named.get_feature_names_out().tolist() == ["7", "3"]
    with pytest.warns(UserWarning, match="X does not have valid feature names, but ChainCRF was fitted with"):
        assert same(named.predict_proba(X), expected)
    with pytest.warns(UserWarning, match="X has feature names, but ChainCRF was fitted without feature names"):
        model.predict(framed(LIBRARIES["pandas"], "speed", "turn"))
    with pytest.raises(ValueError, match="different column names"):
        ChainCRF("linear", C=1.0).fit([*turn(frames[:1]), *X[1:]], Y)


def test_columns_of_the_same_name_are_read_in_the_order_of_the_fit_only():
    arrays = [x[:, [0, 1, 0]] for x in X]
    double = [pd.DataFrame(x, columns=["a", "b", "a"]) for x in arrays]
    crf = ChainCRF("linear", C=1.0).fit(double, Y)
    assert same(crf.predict(double), ChainCRF("linear", C=1.0).fit(arrays, Y).predict(arrays))
    with pytest.raises(ValueError, match="Several columns have the same name"):
        crf.predict([frame.iloc[:, [0, 2, 1]] for frame in double])


def test_a_number_that_is_the_name_of_another_column_is_refused_as_a_column_of_an_input():
    frames = turn([pd.DataFrame(x) for x in X])
    with pytest.raises(ValueError, match=r"inputs\['a'\] has the column 0, .* the column with this name at position"):
        ChainCRF(inputs={"a": Input("linear", columns=[0])}, C=1.0).fit(frames, Y)
