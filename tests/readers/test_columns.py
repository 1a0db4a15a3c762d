"""Names of columns: kept by `fit` and in files, matched by name in sequences, refused as scikit-learn refuses them."""

from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import kernelcrf
from clusters import Inline
from kernelcrf import ChainCRF, GraphCRF, MarkovNetwork
from kernelcrf.distributed import RawSequences, SequenceSources

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
    with pytest.raises(TypeError, match=r"X\[0\]: Feature names are only supported if all input features have string"):
        ChainCRF("linear", C=1.0).fit([pd.DataFrame(x, columns=["a", 1]) for x in X], Y)


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
        return [(frame, [[t, t + 1] for t in range(len(x) - 1)]) for frame, x in zip(frames, X, strict=True)]

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
