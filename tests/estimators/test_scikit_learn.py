"""ChainCRF among scikit-learn's tools, by their own checks and with sequences."""

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.utils import ClassifierTags
from sklearn.utils.estimator_checks import parametrize_with_checks

from estimator_checks import leave_sparse_checks_to_the_slow_command
from kernelcrf import ChainCRF


class SingleTokens(ChainCRF):
    """A classifier of rows: each row is a sequence of one token, as the checks have them."""

    def fit(self, X, y, sample_weight=None):
        return super().fit(X, y, sample_weight, lengths=_ones(X))

    def predict(self, X):
        return np.concatenate(super().predict(X, lengths=_ones(X)))

    def predict_proba(self, X):
        return np.concatenate(super().predict_proba(X, lengths=_ones(X)))

    def score(self, X, y, sample_weight=None):
        return super().score(X, y, sample_weight, lengths=_ones(X))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.estimator_type = "classifier"
        tags.classifier_tags = ClassifierTags()
        return tags


def _ones(X):
    return np.ones(X.shape[0] if hasattr(X, "shape") else len(np.asarray(X)), int)


FLAT = "fits a 2-D X without lengths, which ChainCRF refuses; "
FLAT_CHECKS = {
    "check_fit_score_takes_y": FLAT + "passes for sequences of one token",
    "check_estimators_overwrite_params": FLAT + "passes for sequences of one token",
    "check_dont_overwrite_parameters": FLAT + "passes for sequences of one token",
    "check_estimators_fit_returns_self": FLAT + "passes for sequences of one token",
    "check_readonly_memmap_input": FLAT + "passes for sequences of one token",
    "check_n_features_in_after_fitting": FLAT + "passes for sequences of one token",
    "check_positive_only_tag_during_fit": FLAT + "passes for sequences of one token",
    "check_estimators_dtypes": FLAT + "passes for sequences of one token",
    "check_sample_weights_pandas_series": FLAT + "passes for sequences of one token",
    "check_sample_weights_not_an_array": FLAT + "passes for sequences of one token",
    "check_sample_weights_list": FLAT + "passes for sequences of one token",
    "check_all_zero_sample_weights_error": FLAT + "expects a message on weights; passes for sequences of one token",
    "check_sample_weights_shape": FLAT + "passes for sequences of one token",
    "check_sample_weights_not_overwritten": FLAT + "passes for sequences of one token",
    "check_sample_weight_equivalence_on_dense_data": FLAT + "passes for sequences of one token",
    "check_sample_weight_equivalence_on_sparse_data": FLAT + "sequences of one token say more below",
    "check_complex_data": FLAT + "expects a message on complex numbers; passes for sequences of one token",
    "check_dtype_object": FLAT + "passes for sequences of one token",
    "check_estimators_empty_data_messages": FLAT + "expects a message on features; passes for sequences of one token",
    "check_pipeline_consistency": FLAT + "passes for sequences of one token",
    "check_estimators_nan_inf": FLAT + "expects a message on NaN; passes for sequences of one token",
    "check_estimator_sparse_tag": FLAT + "a sparse X too; passes for sequences of one token",
    "check_estimator_sparse_array": FLAT + "a sparse X too; passes for sequences of one token",
    "check_estimator_sparse_matrix": FLAT + "a sparse X too; passes for sequences of one token",
    "check_estimators_pickle": FLAT + "passes for sequences of one token",
    "check_f_contiguous_array_estimator": FLAT + "passes for sequences of one token",
    "check_methods_sample_order_invariance": FLAT + "passes for sequences of one token",
    "check_methods_subset_invariance": FLAT + "passes for sequences of one token",
    "check_fit2d_1sample": FLAT + "expects a message on samples; passes for sequences of one token",
    "check_fit2d_1feature": FLAT + "expects a message on features; passes for sequences of one token",
    "check_dict_unchanged": FLAT + "passes for sequences of one token",
    "check_fit_idempotent": FLAT + "passes for sequences of one token",
    "check_fit_check_is_fitted": FLAT + "passes for sequences of one token",
    "check_n_features_in": FLAT + "passes for sequences of one token",
    "check_fit2d_predict1d": FLAT + "passes for sequences of one token",
    "check_requires_y_none": FLAT + "expects a message on y; passes for sequences of one token",
}
SINGLE_TOKEN_CHECKS = {
    "check_sample_weight_equivalence_on_sparse_data": "fits sparse matrices and predicts arrays: refused, by an error "
    "that says how to convert them",
    "check_classifiers_regression_target": "wants labels such as 0.37 refused, and any hashable value is a label",
}
# There a check passes over the TypeError that it provokes.
PASSED_OVER = {"check_sample_weight_equivalence_on_sparse_data"} if sklearn.__version__.startswith("1.6.") else set()


def _expected_failures(estimator):
    if not isinstance(estimator, SingleTokens):
        return FLAT_CHECKS
    return {name: why for name, why in SINGLE_TOKEN_CHECKS.items() if name not in PASSED_OVER}


# A number for gamma: "scale" reads all rows, whatever their weights, where a check wants weight 0 to be removal.
TOKENS = [SingleTokens("linear", C=1.0), SingleTokens(gamma=0.5, random_state=0, C=1.0)]
CHECKS = parametrize_with_checks([ChainCRF("linear", C=1.0), *TOKENS])


@leave_sparse_checks_to_the_slow_command(CHECKS, *TOKENS)
def test_the_checks_of_scikit_learn(estimator, check):
    """Not by expected_failed_checks: pytest takes half a second for the traceback of each failure that is expected."""
    if check.func.__name__ in _expected_failures(estimator):
        with pytest.raises((AssertionError, AttributeError, TypeError, ValueError)):
            check(estimator)
    else:
        check(estimator)


@pytest.mark.parametrize("form", ["csc", "coo", "lil", "dok", "dia", "bsr"])
def test_tokens_of_any_sparse_format_are_those_of_csr(form):
    rng = np.random.default_rng(0)
    rows, y = sp.csr_array(np.maximum(rng.normal(size=(40, 3)), 0.0)), np.arange(40) % 2
    expected, found = (SingleTokens("linear", C=1.0).fit(own, y) for own in (rows, rows.asformat(form)))
    np.testing.assert_array_equal(found.predict_proba(rows.asformat(form)), expected.predict_proba(rows))
