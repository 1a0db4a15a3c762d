"""PerToken equals the transformer on stacked tokens, for every kind of sequence, also in scikit-learn's searches."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from sklearn import config_context
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction import DictVectorizer
from sklearn.feature_selection import SelectKBest
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from kernelcrf import ChainCRF
from kernelcrf.datasets import make_sequences
from kernelcrf.preprocessing import PerToken

DATA = make_sequences(12, random_state=0)
X, Y = DATA.X, DATA.y
FLAT, LABELS = np.concatenate(X), np.concatenate(Y)
DICTS = [[{"place": "ab"[int(v[0] > 0)], "size": float(v[1])} for v in x] for x in X]
FRAMES = [pd.DataFrame(x, columns=["a", "b"]).assign(c=x[:, 0] > 0) for x in X]
COLUMNS = make_column_transformer((StandardScaler(), ["b"]), (OneHotEncoder(sparse_output=False), ["c"]))


def as_table(flat):
    return flat.toarray() if sp.issparse(flat) else np.asarray(flat)


@pytest.mark.parametrize(
    ("transformer", "sequences", "flat"),
    [
        (StandardScaler(), X, FLAT),
        (make_pipeline(StandardScaler(), PCA(1)), X, FLAT),
        (SelectKBest(k=1), X, FLAT),
        (SimpleImputer(), [np.where(x > 1, np.nan, x) for x in X], np.where(FLAT > 1, np.nan, FLAT)),
        (TruncatedSVD(1, random_state=0), [sp.csr_array(x) for x in X], sp.csr_array(FLAT)),
        (StandardScaler(with_mean=False), [sp.coo_array(x) for x in X], sp.csr_array(FLAT)),
        (DictVectorizer(), DICTS, [token for tokens in DICTS for token in tokens]),
        (COLUMNS, FRAMES, pd.concat(FRAMES)),
        (COLUMNS, [FRAMES[0], *(frame[["c", "b", "a"]] for frame in FRAMES[1:])], pd.concat(FRAMES)),
        (StandardScaler(), [pl.DataFrame(x) for x in X], pl.DataFrame(FLAT)),
        (StandardScaler(), [[], *X, np.empty((0, 2))], FLAT),
    ],
)
def test_tokens_are_transformed_as_rows_of_one_table(transformer, sequences, flat):
    labels = Y if len(sequences) == len(Y) else [[], *Y, []]
    lengths = [len(own) for own in labels]
    expected = as_table(clone(transformer).fit(flat, LABELS).transform(flat))
    fitted = PerToken(transformer).fit(sequences, labels)
    for found in (fitted.transform(sequences), PerToken(transformer).fit_transform(sequences, labels)):
        assert [x.shape[0] for x in found] == lengths
        np.testing.assert_allclose(np.concatenate([as_table(x) for x in found]), expected, rtol=0, atol=1e-12)
    assert not hasattr(transformer, "n_features_in_")


class OneLess(TransformerMixin, BaseEstimator):
    """Subtracts 1 in `fit_transform` and 2 in `transform`; target encoders have such a difference."""

    def fit_transform(self, X, y=None):
        return self.fit(X).transform(X) + 1

    def fit(self, X, y=None):
        self.n_features_in_ = X.shape[1]
        return self

    def transform(self, X):
        return X - 2


def test_fit_transform_is_that_of_the_transformer():
    found = PerToken(OneLess()).fit_transform(X)
    np.testing.assert_array_equal(np.concatenate(found), FLAT - 2 + 1)


def test_names_and_containers_are_those_of_the_transformer():
    scaler = PerToken(COLUMNS).fit(FRAMES)
    names = ["standardscaler__b", "onehotencoder__c_False", "onehotencoder__c_True"]
    assert scaler.get_feature_names_out().tolist() == names
    assert (scaler.n_features_in_, scaler.feature_names_in_.tolist()) == (3, ["a", "b", "c"])
    assert clone(scaler).set_output(transform="pandas").fit(FRAMES).transform(FRAMES)[1].columns.tolist() == names
    assert [type(x) for x in PerToken(StandardScaler()).set_output(transform="polars").fit_transform(X[:1])] == [
        pl.DataFrame
    ]
    with config_context(transform_output="pandas"):
        assert isinstance(PerToken(StandardScaler()).fit_transform(X)[0], pd.DataFrame)
    dated = [frame.set_axis(np.arange(len(frame)) + 0.5) for frame in FRAMES]
    framed = (
        make_pipeline(scaler, ChainCRF(n_components=5, C=1.0)).set_output(transform="pandas")[:-1].fit_transform(dated)
    )
    assert [frame.index.tolist() for frame in framed] == [frame.index.tolist() for frame in dated]
    assert not hasattr(PerToken(StandardScaler()), "n_features_in_")


def test_only_training_folds_are_fitted_in_a_search():
    crf = ChainCRF(n_components=20, random_state=0, C=1.0)
    pipe = make_pipeline(PerToken(StandardScaler()), crf)
    grid = [{"pertoken__transformer__with_std": [False, True]}, {"pertoken__transformer": [PCA(1)]}]
    far = [x + 100.0 * (i % 3 == 0) for i, x in enumerate(X)]
    search = GridSearchCV(pipe, grid, cv=KFold(3)).fit(far, Y)
    for fold, (train, test) in enumerate(KFold(3).split(far)):
        scaler = StandardScaler().fit(np.concatenate([far[i] for i in train]))
        alone = clone(crf).fit([scaler.transform(far[i]) for i in train], [Y[i] for i in train])
        score = alone.score([scaler.transform(far[i]) for i in test], [Y[i] for i in test])
        assert search.cv_results_[f"split{fold}_test_score"][1] == score


def test_sequences_without_tokens_are_transformed_to_such():
    scaler = PerToken(StandardScaler()).fit(X)
    assert scaler.transform([]) == []
    assert [len(x) for x in scaler.transform([[], np.empty((0, 2))])] == [0, 0]
    assert make_pipeline(scaler, ChainCRF(n_components=5, C=1.0)).fit(X, Y).predict([[]])[0].tolist() == []


@pytest.mark.parametrize(
    ("transformer", "sequences", "message"),
    [
        (StandardScaler(), [], "0 sequence.* and no token: expected at least one"),
        (StandardScaler(), [[], []], "2 sequence.* and no token: expected at least one"),
        (StandardScaler(), FLAT, r"one ndarray of shape .*: expected a list of sequences\. .* pass \[X\]"),
        (StandardScaler(), FRAMES[0], "one DataFrame of shape"),
        (StandardScaler(), [X[0], X[1][:, :1]], r"X\[1\] has 1 features and X\[0\] has 2"),
        (StandardScaler(), [FRAMES[0], FRAMES[1][["a"]]], r"different column names \(only X\[0\] has 'b', 'c'\)"),
        (StandardScaler(), DICTS, r"feature dicts .*PerToken\(make_pipeline\(DictVectorizer\(\), ...\)\)"),
        (StandardScaler(), [X[0], DICTS[0]], r"X\[0\] has arrays of numbers and X\[1\] has feature dicts"),
        (StandardScaler, X, r"expected a transformer.*PerToken\(StandardScaler\(\)\)"),
        (ChainCRF(C=1.0), X, "expected a transformer"),
        (FunctionTransformer(lambda rows: rows[1:]), X, "rows for .* tokens: expected one row per token"),
    ],
)
def test_data_that_cannot_be_fitted_are_refused(transformer, sequences, message):
    with pytest.raises((ValueError, TypeError), match=message):
        PerToken(transformer).fit_transform(sequences)


def test_other_columns_than_those_of_the_fit_are_refused():
    scaler = PerToken(StandardScaler()).fit(X)
    with pytest.raises(ValueError, match="X has 1 features, but StandardScaler is expecting 2"):
        scaler.transform([X[0][:, :1]])
    with pytest.raises(TypeError, match="feature dicts"):
        scaler.transform(DICTS)
    with pytest.raises(ValueError, match="y has 1 sequences and X has 12"):
        scaler.fit(X, Y[:1])
    named = PerToken(StandardScaler()).fit(FRAMES)
    reordered = named.transform([frame[["c", "a", "b"]] for frame in FRAMES])
    np.testing.assert_array_equal(np.concatenate(reordered), np.concatenate(named.transform(FRAMES)))
    with pytest.raises(ValueError, match="feature names should match"):
        named.transform([frame.rename(columns={"a": "z"}) for frame in FRAMES])
    with pytest.raises(NotFittedError):
        PerToken(StandardScaler()).transform(X)


def test_columns_of_arrow_tables_have_the_order_of_the_fit():
    one = pa.table({"a": [0.0, 1.0, 2.0], "b": [0.0, 100.0, 200.0]})
    other = one.select(["b", "a"])
    step = PerToken(StandardScaler()).fit([one, other])
    np.testing.assert_allclose(step.transformer_.mean_, [1, 100])
    np.testing.assert_array_equal(*step.transform([one, other]))


def test_frames_of_two_libraries_are_refused():
    frames = [pd.DataFrame({"a": [1.0], "b": [2.0]}), pl.DataFrame({"b": [2.0], "a": [1.0]})]
    with pytest.raises(TypeError, match="data frames of several libraries"):
        PerToken(StandardScaler()).fit(frames)
