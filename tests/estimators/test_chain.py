import pickle
import re
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from chain_fits import of_tokens_and_steps
from kernelcrf import ChainCRF, KernelClassifier
from kernelcrf.basis import Landmarks
from kernelcrf.datasets import make_sequences
from kernelcrf.engines.local import LocalEngine
from kernelcrf.metrics import flat_accuracy, get_scorer
from kernelcrf.preprocessing import PerToken
from kernelcrf.readers.schemes import STRICT_SCHEMES


@pytest.fixture(scope="module")
def train():
    return make_sequences(120, random_state=0)


@pytest.fixture(scope="module")
def test():
    return make_sequences(120, random_state=1)


@pytest.fixture(scope="module")
def model(train):
    return ChainCRF(C=10.0, n_components=100, random_state=0).fit(train.X, train.y)


def test_a_kernel_comes_close_to_the_bayes_rule_where_a_linear_model_cannot(model, train, test):
    linear = ChainCRF("linear", C=10.0).fit(train.X, train.y)
    assert linear.score(test.X, test.y) < 0.6
    assert model.score(test.X, test.y) > 0.9 * (1 - test.bayes_error)
    assert model.certificate_.status == "optimal"
    assert model.certificate_.relative_gap <= 1e-4
    assert model.objective_curve_[-1] == model.certificate_.objective
    assert len(model.objective_curve_) == model.n_iter_ + 1
    assert model.landmarks_.shape == (100, 2)
    assert linear.landmarks_ is None
    assert linear.coef_.shape == (2, 3)
    assert model.transitions_.shape == (3, 3)


def test_what_each_method_returns_is_consistent(model, test):
    X, y = test.X[:20], test.y[:20]
    predicted, proba = model.predict(X), model.predict_proba(X)
    assert [p.shape for p in proba] == [(len(x), 3) for x in X]
    np.testing.assert_allclose(np.concatenate(proba).sum(axis=1), 1, rtol=1e-12)
    best = model.distribution(X).k_best(3)
    edges = model.distribution(X).edge_marginals()
    for i, labels in enumerate(predicted):
        np.testing.assert_array_equal(best[i][0][0], labels)
        assert model.log_prob([X[i]], [labels])[0] == pytest.approx(best[i][0][1], abs=1e-9)
        np.testing.assert_allclose(edges[i][1:].sum(axis=1), proba[i][1:], atol=1e-12)
    marginals = model.predict_marginals(X)
    assert marginals[0][0] == dict(zip([0, 1, 2], proba[0][0].tolist(), strict=True))
    assert (model.log_prob(X, y) <= 0).all()
    assert (model.distribution(X).entropy() >= 0).all()
    draws = model.distribution(X).sample(500, random_state=0)
    frequency = np.stack([(draws[0] == label).mean(axis=0) for label in model.classes_], axis=1)
    np.testing.assert_allclose(frequency, proba[0], atol=0.1)
    np.testing.assert_array_equal(draws[3], model.distribution(X).sample(500, random_state=0)[3])
    by_marginals = pickle.loads(pickle.dumps(model)).set_params(decoding="marginal")
    for labels, p in zip(by_marginals.predict(X), proba, strict=True):
        np.testing.assert_array_equal(labels, p.argmax(axis=1))


def test_flat_inputs_sparse_matrices_and_single_precision_give_the_same_model(model, train, test):
    lengths = [len(x) for x in train.X]
    flat = clone(model).fit(np.concatenate(train.X), np.concatenate(train.y), lengths=lengths)
    np.testing.assert_array_equal(flat.coef_, model.coef_)
    sparse = ChainCRF("linear", tol=1e-8, C=1.0, fit_intercept=False).fit([sp.csr_array(x) for x in train.X], train.y)
    dense = ChainCRF("linear", tol=1e-8, C=1.0, fit_intercept=False).fit(train.X, train.y)
    np.testing.assert_allclose(sparse.coef_, dense.coef_, atol=1e-3)
    single = clone(model).fit([x.astype(np.float32) for x in train.X], train.y)
    assert single.predict_proba([test.X[0].astype(np.float32)])[0].dtype == np.float32
    assert single.score([x.astype(np.float32) for x in test.X], test.y) == pytest.approx(
        model.score(test.X, test.y), abs=0.02
    )


def test_single_precision_asked_for_more_than_it_has_ends_cleanly(train):
    single = [x.astype(np.float32) for x in train.X]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for gamma in (0.1, 1.0):
            model = ChainCRF(gamma=gamma, n_components=None, tol=1e-10, max_iter=300, C=1.0).fit(single, train.y)
            assert abs(model.certificate_.relative_gap) < 1e-3


def test_labels_that_y_does_not_show_can_be_named(train):
    two = [np.minimum(labels, 1) for labels in train.y]
    model = ChainCRF("linear", classes=[0, 1, 2], C=1.0).fit(train.X, two)
    np.testing.assert_array_equal(model.classes_, [0, 1, 2])
    assert max(p[:, 2].max() for p in model.predict_proba(train.X)) < 0.1
    signs = ChainCRF("linear", classes=[-1, 1], C=1.0).fit(
        train.X, [np.where(labels == 0, -1, 1) for labels in train.y]
    )
    np.testing.assert_array_equal(signs.classes_, [-1, 1])


@pytest.mark.usefixtures("two_threads_of_blas")
def test_the_number_of_threads_changes_no_bit(model, train, test):
    one, two = (clone(model).set_params(n_jobs=n_jobs).fit(train.X, train.y) for n_jobs in (1, 2))
    np.testing.assert_array_equal(two.coef_, one.coef_)
    for a, b in zip(two.predict_proba(test.X), one.predict_proba(test.X), strict=True):
        np.testing.assert_array_equal(a, b)


def test_it_is_a_scikit_learn_estimator(train):
    X, y = train.X, train.y
    search = GridSearchCV(
        ChainCRF(n_components=40, random_state=0, C=1.0),
        {"C": [0.01, 10.0]},
        cv=KFold(3),
        scoring=get_scorer("neg_log_loss"),
    ).fit(X, y)
    assert search.best_params_ == {"C": 10.0}
    base = ChainCRF(n_components=40, random_state=0, C=1.0)
    scores = cross_val_score(base, X, y, cv=KFold(3))
    assert scores.min() > 0.8
    other = clone(base).set_params(kernel="poly", gamma=2.0)
    assert other.get_params()["gamma"] == 2.0
    assert base.kernel == "auto"


def test_kernels_of_gaussian_processes_and_callables_work(train, test):
    by_object = ChainCRF(ConstantKernel(1.0) * RBF(1.0), n_components=60, random_state=0, C=1.0).fit(train.X, train.y)
    few = {"n_components": Landmarks(60, "random"), "random_state": 0, "C": 1.0}
    by_name = ChainCRF("rbf", gamma=0.5, **few).fit(train.X, train.y)
    by_call = ChainCRF(lambda A, B: np.exp(-0.5 * ((A[:, None] - B) ** 2).sum(-1)), **few).fit(train.X, train.y)
    np.testing.assert_allclose(by_call.score(test.X, test.y), by_name.score(test.X, test.y), atol=1e-3)
    assert by_object.score(test.X, test.y) > 0.8


def test_gamma_scale_is_that_of_svc(train):
    flat = np.concatenate(train.X)
    scaled = ChainCRF(n_components=Landmarks(20, "random"), random_state=0, C=1.0).fit(train.X, train.y)
    number = ChainCRF(gamma=1 / (2 * flat.var()), n_components=Landmarks(20, "random"), random_state=0, C=1.0).fit(
        train.X, train.y
    )
    np.testing.assert_allclose(scaled.coef_, number.coef_, atol=1e-8)


def test_steps_that_depend_on_the_input_need_an_input_of_steps():
    """The label changes exactly where the input says so: no token tells its label, only the step."""
    rng = np.random.default_rng(3)

    def draw(count):
        X, y = [], []
        for _ in range(count):
            turn = rng.random(15) < 0.3
            turn[0] = False
            X.append(np.column_stack([turn, np.arange(15) == 0]) + 0.1 * rng.normal(size=(15, 2)))
            y.append(np.cumsum(turn) % 2)
        return X, y

    X, y = draw(60)
    X_test, y_test = draw(60)
    plain = ChainCRF(n_components=30, C=10.0, random_state=0).fit(X, y)
    stepping = ChainCRF(inputs=of_tokens_and_steps(n_components=30), C=10.0, random_state=0).fit(X, y)
    linear = ChainCRF(inputs=of_tokens_and_steps("linear", "linear"), C=10.0).fit(X, y)
    assert plain.score(X_test, y_test) < 0.75
    assert stepping.score(X_test, y_test) > 0.95
    assert linear.score(X_test, y_test) > 0.95
    assert stepping.edge_coef_.shape == (30, 2, 2)
    assert plain.edge_coef_ is None


def test_constraints_are_never_broken():
    rng = np.random.default_rng(0)
    y = [["B", "I", "O", "O"], ["O", "B", "O", "B"], ["B", "I", "I", "I"]] * 10
    X = [rng.normal(size=(4, 3)) for _ in y]
    model = ChainCRF(constraints="BIO", n_components=20, C=0.1, random_state=0).fit(X, y)
    noise = [5 * rng.normal(size=(n, 3)) for n in rng.integers(1, 30, size=50)]
    labelings = model.predict(noise)
    labelings += [y for best in model.distribution(noise).k_best(5) for y, _ in best]
    labelings += [y for draws in model.distribution(noise).sample(5, 0) for y in draws]
    for labels in labelings:
        for before, label in zip(["O", *labels], labels, strict=False):
            assert label != "I" or before in "BI"


@pytest.mark.parametrize(
    ("constraints", "labels", "message"),
    [
        ("BIO", ["B", "O", "I"], "at token 2: 'O' -> 'I' is not allowed; correct the labels"),
        ("BIO", ["I", "I", "O"], "at token 0: 'I' is not allowed at the start of a sequence"),
        ("BIOUL", ["O", "O", "B"], "at token 2: 'B' is not allowed at the end of a sequence"),
        ([("B", "I"), (None, "B")], ["B", "I", "B"], "at token 2: 'I' -> 'B' is not allowed"),
    ],
)
def test_labels_that_break_constraints_are_named_with_their_token_and_transition(constraints, labels, message):
    crf = ChainCRF(constraints=constraints, classes=["B", "I", "O"], C=1.0)
    with pytest.raises(ValueError, match=f"y of sequence 1 break the constraints {message}"):
        crf.fit([np.eye(3)] * 2, [[None] * 3, labels])


def test_the_docstring_lists_all_schemes_of_constraints():
    line = next(line for line in ChainCRF.__doc__.splitlines() if line.strip().startswith("constraints : "))
    assert set(re.findall(r'"(\w+)"', line)) == STRICT_SCHEMES.keys()


def test_missing_and_ambiguous_labels_are_used(train, test):
    rng = np.random.default_rng(2)
    hidden = [[None if rng.random() < 0.5 else int(label) for label in labels] for labels in train.y]
    model = ChainCRF(C=10.0, n_components=100, random_state=0).fit(train.X, hidden)
    assert model.certificate_.lower_bound == -np.inf
    full = [i for i, labels in enumerate(hidden) if None not in labels]
    few = ChainCRF(C=10.0, n_components=100, random_state=0).fit([train.X[i] for i in full], [train.y[i] for i in full])
    assert model.score(test.X, test.y) > few.score(test.X, test.y)
    sets = [[{int(label), (int(label) + 1) % 3} for label in labels] for labels in train.y]
    known = [[int(label) for label in train.y[0]], *sets[1:]]
    ambiguous = ChainCRF(C=10.0, n_components=50, random_state=0).fit(train.X, known)
    assert ambiguous.log_prob(train.X, sets).mean() > ambiguous.log_prob(train.X, train.y).mean()


def test_a_label_that_training_did_not_see_is_an_error_of_prediction_not_of_the_program(train):
    seen = ChainCRF("linear", C=1.0).fit(train.X[:20], [np.minimum(labels, 1) for labels in train.y[:20]])
    total = np.concatenate(train.y)
    assert 0 < seen.score(train.X, train.y) < 1 - (total == 2).mean() + 1e-12
    half_known = [[None if label == 2 else label for label in labels] for labels in train.y]
    assert seen.score(train.X, half_known) > seen.score(train.X, train.y)


def test_weights_of_sequences_and_classes(train):
    X, y = train.X[:30], train.y[:30]
    doubled = ChainCRF("linear", C=1.0).fit([*X, X[0]], [*y, y[0]])
    weighted = ChainCRF("linear", C=1.0).fit(X, y, sample_weight=[2.0] + [1.0] * 29)
    np.testing.assert_allclose(doubled.transitions_, weighted.transitions_, atol=2e-3)
    rare = [[0] * 9 + [1]] * 20
    inputs = [np.random.default_rng(i).normal(size=(10, 2)) for i in range(20)]
    plain = ChainCRF("linear", C=1.0).fit(inputs, rare)
    balanced = ChainCRF("linear", class_weight={1: 50.0}, C=1.0).fit(inputs, rare)
    assert balanced.certificate_.objective > plain.certificate_.objective
    named = ChainCRF("linear", class_weight="balanced", classes=[0, 1, 7], C=1.0).fit(inputs, rare)
    assert named.certificate_.status == "optimal"
    with pytest.raises(ValueError, match="class_weight names the label 'x'"):
        ChainCRF("linear", class_weight={"x": 2.0}, C=1.0).fit(inputs, rare)
    with pytest.raises(ValueError, match=r"sample_weight has shape \(2,\): expected an array of shape \(30,\)"):
        ChainCRF("linear", C=1.0).fit(X, y, sample_weight=[1.0, 2.0])


def test_a_warm_start_takes_up_landmarks_and_weights(train):
    model = ChainCRF(n_components=50, random_state=0, warm_start=True, C=1.0).fit(train.X[:60], train.y[:60])
    landmarks = model.landmarks_
    model.fit(train.X, train.y)
    assert model.landmarks_ is landmarks
    again = model.fit(train.X, train.y)
    assert again.n_iter_ <= 1


def test_a_fit_that_ends_early_warns_with_its_gap(train):
    with pytest.warns(ConvergenceWarning, match=r"'max_iter' at a relative certified gap of .*, above tol=1e-08"):
        ChainCRF(n_components=30, max_iter=2, tol=1e-8, C=1.0).fit(train.X, train.y)


def test_what_does_not_fit_is_refused(model, train):
    with pytest.raises(NotFittedError):
        ChainCRF(C=1.0).predict(train.X)
    with pytest.raises(
        ValueError,
        match="decoding='best': expected 'viterbi', 'marginal', 'f1', 'cost', 'span_cost', 'auto' or a decoding rule",
    ):
        ChainCRF(decoding="best", C=1.0).fit(train.X, train.y)
    with pytest.raises(ValueError, match="gamma='small'"):
        ChainCRF(gamma="small", C=1.0).fit(train.X, train.y)
    with pytest.raises(ValueError, match="X has 3 features, but ChainCRF is expecting 2"):
        model.predict([np.zeros((2, 3))])
    with pytest.raises(TypeError, match=r"feature dicts.*fit was given arrays"):
        model.predict([[{"a": 1}]])
    with pytest.raises(ValueError, match="label 7 at sequence 0, token 0"):
        model.log_prob(train.X[:1], [[7] * len(train.X[0])])
    with pytest.raises(ValueError, match="at least 2 classes"):
        ChainCRF(C=1.0).fit(train.X[:2], [[0] * len(x) for x in train.X[:2]])


def test_pickle_keeps_the_model_but_not_the_training_data(model, train, test):
    blob = pickle.dumps(model)
    assert len(blob) < 200_000
    for a, b in zip(pickle.loads(blob).predict_proba(test.X), model.predict_proba(test.X), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("of_steps", [None, "rbf", "linear"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_scores_are_features_times_weights(train, test, of_steps, dtype):
    """Prediction folds the basis into the weights; `coef_` and `edge_coef_` are those of the whitened features."""
    X, new = ([x.astype(dtype) for x in data.X[:40]] for data in (train, test))
    inputs = of_tokens_and_steps(of_steps=of_steps, n_components=30)
    inputs = inputs if of_steps else {"tokens": inputs["tokens"]}
    model = ChainCRF(inputs=inputs, random_state=0, C=1.0, fit_intercept=False).fit(X, train.y[:40])
    found = model.model_.field(new, None, LocalEngine())
    s, w = found.s, found.w
    flat = np.concatenate(new)
    tolerance = 1e-10 if dtype == np.float64 else 1e-3
    assert s.dtype == w.dtype == dtype
    np.testing.assert_allclose(s, model.model_.maps["inputs__tokens"].transform(flat) @ model.coef_, atol=tolerance)
    expected = model.transitions_
    if of_steps is not None:
        steps = np.einsum("tn,nij->tij", model.model_.maps["inputs__steps"].transform(flat), model.edge_coef_)
        expected = expected + steps
    np.testing.assert_allclose(w, expected, atol=tolerance)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.model_.field(new, None, LocalEngine()).s, s)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("hash_features", [None, 2**6])
def test_feature_lists_are_scored_as_their_matrix(kernel, hash_features):
    """One sequence at a time or all at once; empty ones, single tokens, empty tokens and features never seen."""
    rng = np.random.default_rng(0)
    X = [[[f"w={rng.integers(20)}", f"p={rng.integers(4)}"] for _ in range(rng.integers(1, 8))] for _ in range(30)]
    y = [["ab"[len(token[1]) % 2 ^ int(token[0][-1]) % 2] for token in x] for x in X]
    model = ChainCRF(kernel, hash_features=hash_features, n_components=10, random_state=0, C=1.0).fit(X, y)
    new = [*X[:5], [], [["w=3"]], [["never", "seen"], ["w=3", "w=3"], []], [[]]]
    flat, chains = model.model_.reader.read(new)
    s = model.model_.field(new, None, LocalEngine()).s
    np.testing.assert_allclose(s, model.model_.maps["node"].transform(flat) @ model.coef_, atol=1e-10)
    together = model.predict(new)
    assert [len(labels) for labels in together] == [len(x) for x in new] == chains.lengths.tolist()
    for labels, x in zip(together, new, strict=True):
        np.testing.assert_array_equal(model.predict([x])[0], labels)
    np.testing.assert_array_equal(model.model_.field(new, None, LocalEngine(2)).s, s)


def test_a_bar_shows_objective_and_gap_where_one_is_asked_for(capsys):
    data = make_sequences(10, random_state=0)
    crf = ChainCRF("linear", verbose=1, C=1.0).fit(data.X, data.y)
    shown = capsys.readouterr().err
    assert f"{crf.n_iter_} iterations" in shown.split("\r")[-1]
    assert "ChainCRF" in shown
    assert f"objective {crf.certificate_.objective:.6g}, gap" in shown
    ChainCRF("linear", C=1.0).fit(data.X, data.y)
    assert not capsys.readouterr().err


def test_the_bar_of_a_search_counts_the_iterations_of_its_last_fit(capsys):
    data = make_sequences(10, random_state=0)
    crf = ChainCRF("linear", C="evidence", verbose=1).fit(data.X, data.y)
    assert re.search(rf" {crf.n_iter_} iterations .*fit [1-9]\d*, objective", capsys.readouterr().err.split("\r")[-1])


def test_a_score_without_any_known_label_warns():
    data = make_sequences(10, random_state=0)
    crf = ChainCRF("linear", C=1.0).fit(data.X, data.y)
    with pytest.warns(UserWarning, match=r"none of the labels of y, such as \d+, is among the classes of the fit"):
        assert crf.score(data.X, [labels + 10 for labels in data.y]) == 0.0
    texts = [np.array(["a", "b"])[labels % 2] for labels in data.y]
    crf = ChainCRF("linear", C=1.0).fit(data.X, texts)
    with pytest.warns(UserWarning, match=r"such as '[ab]a', is among the classes of the fit, such as 'a': "):
        crf.score(data.X, [np.char.add(labels, "a") for labels in texts])


def test_warnings_point_to_the_line_of_the_user():
    data = make_sequences(12, random_state=0)
    X = [x * [1, 1e4] for x in data.X]
    short = ChainCRF("linear", C=1.0, max_iter=1, tol=1e-9)
    calls = {
        ConvergenceWarning: [
            lambda: short.fit(data.X, data.y),
            lambda: make_pipeline(PerToken(StandardScaler()), short).fit(data.X, data.y),
            lambda: GridSearchCV(short, {"C": [0.1, 1.0]}, cv=2).fit(data.X, data.y),
        ],
        UserWarning: [
            lambda: ChainCRF(C=1.0, n_components=5).fit(X, data.y),
            lambda: KernelClassifier(n_components=5).fit(np.concatenate(X), np.concatenate(data.y)),
            lambda: ChainCRF("linear", C=1.0).fit(X, data.y).score(X, [labels + 10 for labels in data.y]),
        ],
    }
    for category, own in calls.items():
        for call in own:
            with pytest.warns(category) as caught:
                call()
            assert {(one.filename, one.lineno) for one in caught} == {(__file__, call.__code__.co_firstlineno)}


def test_labels_of_another_type_than_those_of_the_fit_have_no_score():
    data = make_sequences(10, random_state=0)
    crf = ChainCRF("linear", C=1.0).fit(data.X, data.y)
    texts = [list(map(str, labels)) for labels in data.y]
    with pytest.raises(
        ValueError, match=r"y has labels such as '\d' of type str, and the data of the fit .* of type int"
    ):
        crf.score(data.X, texts)
    with pytest.raises(ValueError, match=r"y_true has labels such as '\d' of type str, and y_pred .* of type int"):
        flat_accuracy(texts, crf.predict(data.X))
    mixed = [[str(labels[0]), *labels[1:]] for labels in data.y]
    assert 0 < crf.score(data.X, mixed) < crf.score(data.X, data.y) == crf.score(data.X, [y + 0.0 for y in data.y])


@pytest.mark.parametrize(
    ("convert", "kernel"),
    [
        (np.asarray, "rbf"),
        (sp.csr_array, "linear"),
        (lambda x: [{"a": float(row[0]), "b": float(row[1])} for row in x], "linear"),
    ],
    ids=["arrays", "sparse matrices", "feature dicts"],
)
def test_the_default_kernel_follows_the_kind_of_inputs(convert, kernel):
    data = make_sequences(10, random_state=0)
    X = [convert(x) for x in data.X]
    found, named = (
        ChainCRF(random_state=0, C=1.0).fit(X, data.y),
        ChainCRF(kernel, random_state=0, C=1.0).fit(X, data.y),
    )
    assert found.kernel_ == named.kernel_
    assert found.certificate_ == named.certificate_
