"""Kernels on inputs and labels together beside enumeration with dense joint kernels, and beside moved copies."""

import itertools

import numpy as np
import pytest
from sklearn.base import clone

from joint_twin import JointTwin
from kernelcrf import ChainCRF, Input, KernelClassifier, SegmentCRF, Symmetry, load, make_report
from kernelcrf.basis import Landmarks
from kernelcrf.cli.inspection import inspect
from kernelcrf.kernels.joint_labels import label_kernels_from_config, label_kernels_to_config
from kernelcrf.kernels.orbits import Orbits, Views

G, C, GAMMA = 3, 2.0, 0.3
LABELS = {f"{r}{t}": [f"{(r + k) % G}{t}" for k in range(G)] for r in range(G) for t in "Mm"} | {"none": ["none"] * G}
# Six columns that move, in two blocks, and one that does not.
COLUMNS = [np.concatenate([np.roll(np.arange(3), k), 3 + np.roll(np.arange(3), k), [6]]) for k in range(G)]
CHORDS = Symmetry(LABELS, COLUMNS)
RNG = np.random.default_rng(0)
LENGTHS = (3, 2, 3, 1)
X = [RNG.normal(size=(T, 7)) for T in LENGTHS]
Y = [["0M", "none", "1m"], ["2M", "0m"], ["2m", "0M", "none"], ["1M"]]
TIGHT = {"gamma": GAMMA, "C": C, "tol": 1e-10, "fit_intercept": False, "random_state": 0}


def k_x(kernel, a, b):
    return a @ b.T if kernel == "linear" else np.exp(-GAMMA * np.square(a[:, None] - b[None]).sum(-1))


def moving(classes):
    """Return M[g, y, z], whether element g makes label y of label z."""
    return np.array([[[LABELS[z][g] == y for z in classes] for y in classes] for g in range(G)], float)


def dense(kernel, X, classes, moves_inputs=True):
    """Return the twin of the joint kernel, written from its definition."""
    rows, M = np.concatenate(X), moving(classes)
    grams = [k_x(kernel, rows, rows[:, COLUMNS[g]] if moves_inputs else rows) for g in range(G)]
    K = C * np.einsum("gst,gyz->sytz", np.array(grams), M)
    Q = C * np.einsum("gac,gbd->abcd", M, M)
    return JointTwin([len(x) for x in X], K, Q)


def indices(y, classes):
    names = list(classes)
    return [[names.index(label) for label in labels] for labels in y]


@pytest.fixture(scope="module")
def model():
    return ChainCRF("rbf", n_components=None, label_kernel=CHORDS, certify_full=True, **TIGHT).fit(X, Y)


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
@pytest.mark.parametrize("moves_inputs", [True, False])
def test_fits_equal_enumeration_with_the_dense_joint_kernel(kernel, moves_inputs):
    symmetry = Symmetry(LABELS, COLUMNS if moves_inputs else None)
    crf = ChainCRF(kernel, n_components=None, label_kernel=symmetry, certify_full=True, **TIGHT).fit(X, Y)
    twin = dense(kernel, X, crf.classes_, moves_inputs)
    value, p = twin.fit(indices(Y, crf.classes_))
    assert crf.certificate_.objective == pytest.approx(value, rel=1e-8)
    assert crf.certificate_.gap_full < 1e-7
    for found, true in zip(crf.predict_proba(X), twin.marginals(p, len(LABELS)), strict=True):
        assert found == pytest.approx(true, abs=1e-4)


@pytest.mark.parametrize("solver", ["lbfgs", "newton-cg", "newton", "block-jacobi", "subspace"])
def test_gap_full_covers_the_distance_to_the_optimum_of_the_joint_kernel(solver, model):
    for n in (2, 6):
        crf = ChainCRF("rbf", n_components=n, label_kernel=CHORDS, solver=solver, certify_full=True, **TIGHT)
        certificate = crf.fit(X, Y).certificate_
        truth = certificate.objective - model.certificate_.objective
        assert 0 < truth <= certificate.gap_full
        assert certificate.status == "optimal"


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_a_fit_equals_a_fit_to_moved_copies(kernel):
    options = {**TIGHT, "fit_intercept": "boundaries", "n_components": None, "weights": "all"}
    crf = ChainCRF(kernel, label_kernel=CHORDS, **options).fit(X, Y)
    copies = [x[:, columns] for columns in COLUMNS for x in X]
    moved = [[LABELS[label][g] for label in labels] for g in range(G) for labels in Y]
    many = ChainCRF(kernel, **options).fit(copies, moved)
    assert crf.certificate_.objective == pytest.approx(many.certificate_.objective / G, rel=1e-7)
    for name in ("transitions_", "intercept_", "start_scores_", "end_scores_"):
        assert getattr(crf, name) == pytest.approx(getattr(many, name), abs=1e-3)
    for found, true in zip(crf.predict_proba(X), many.predict_proba(X), strict=True):
        assert found == pytest.approx(true, abs=1e-3)


def test_several_inputs_move_and_score_steps():
    inputs = {
        "chords": Input("rbf", gamma=GAMMA, n_components=None, columns=slice(0, 6)),
        "accent": Input("linear", columns=[6]),
        "steps": Input("rbf", gamma=GAMMA, n_components=None, scores="steps"),
    }
    symmetry = Symmetry(LABELS, {"chords": np.array(COLUMNS)[:, :6], "steps": COLUMNS})
    options = {"C": C, "tol": 1e-9, "fit_intercept": False, "weights": "all"}
    crf = ChainCRF(inputs=inputs, label_kernel=symmetry, **options).fit(X, Y)
    copies = [x[:, columns] for columns in COLUMNS for x in X]
    moved = [[LABELS[label][g] for label in labels] for g in range(G) for labels in Y]
    many = ChainCRF(inputs=inputs, **options).fit(copies, moved)
    assert crf.certificate_.objective == pytest.approx(many.certificate_.objective / G, rel=1e-6)
    with pytest.raises(AttributeError, match="edge_coef_ is not available"):
        crf.edge_coef_  # noqa: B018


def test_features_that_are_not_stored_give_the_same_fit(model):
    n_components = Landmarks(None, features="recomputed")
    crf = ChainCRF("rbf", n_components=n_components, label_kernel=CHORDS, certify_full=True, **TIGHT).fit(X, Y)
    assert crf.certificate_.objective == pytest.approx(model.certificate_.objective, rel=1e-8)
    assert crf.certificate_.gap_full < 1e-6


def test_moved_sequences_get_the_moved_labels(model):
    for g in range(G):
        moved = model.predict([x[:, COLUMNS[g]] for x in X])
        expected = [[LABELS[label][g] for label in labels] for labels in model.predict(X)]
        assert [labels.tolist() for labels in moved] == expected


def test_labels_are_predicted_that_only_moved_labels_were_seen_of():
    y = [["0M", "none", "0m"], ["0M", "0m"], ["0m", "0M", "none"], ["0M"]]
    crf = ChainCRF("rbf", label_kernel=CHORDS, **TIGHT).fit(X, y)
    assert sorted(crf.classes_) == sorted(LABELS)
    moved = crf.predict([x[:, COLUMNS[1]] for x in X])
    assert {label for labels in moved for label in labels} <= {"1M", "1m", "none"}


def test_answers_of_a_stored_model_are_the_same(model, tmp_path):
    model.save(tmp_path / "model.kcrf")
    loaded = load(tmp_path / "model.kcrf")
    for found, true in zip(loaded.predict_proba(X), model.predict_proba(X), strict=True):
        assert np.array_equal(found, true)
    assert loaded.score(X, Y) == model.score(X, Y)
    assert loaded.distribution(X).decode("viterbi")[0].tolist() == model.predict(X)[0].tolist()
    again = clone(loaded).fit(X, Y)
    assert again.certificate_.objective == pytest.approx(model.certificate_.objective, rel=1e-9)
    assert loaded.set_params(warm_start=True).fit(X, Y).n_iter_ <= 1


def test_streams_give_the_probabilities_of_whole_sequences(model):
    live = model.stream(lag=5)
    answers = [live.push(token) for token in X[0]]
    rest = live.finish()
    p = np.concatenate([answer.lagged.probabilities for answer in (*answers, rest)])
    assert p == pytest.approx(model.predict_proba(X)[0], abs=1e-9)


def test_missing_labels_and_held_out_searches_work():
    crf = ChainCRF("rbf", label_kernel=CHORDS, **(TIGHT | {"tol": 1e-4})).fit(X, [["0M", None, "1m"], *Y[1:]])
    assert crf.certificate_.status == "stationary"
    auto = ChainCRF(label_kernel=CHORDS, random_state=0).fit(X * 3, Y * 3)
    assert auto.C_ in 10.0 ** np.arange(-3, 5)
    assert set(auto.search_["kernel"]) == {"linear", "rbf"}


@pytest.mark.parametrize("name", ["explain", "top_features", "coef_"])
def test_answers_about_weights_of_labels_are_refused(model, name):
    with pytest.raises(AttributeError, match="is not available for a model with label_kernel=Symmetry"):
        model.explain(X[0], 0) if name == "explain" else getattr(model, name)()


def test_reports_and_the_command_leave_out_weights_of_labels(model, tmp_path, capsys):
    assert "Explanations of decisions" not in make_report(model, X, Y)
    model.save(tmp_path / "model.kcrf")
    inspect(str(tmp_path / "model.kcrf"), 3, as_json=False)
    printed = capsys.readouterr().out
    assert "strongest transitions" in printed
    assert "strongest landmarks" not in printed


def test_answers_without_a_bound_are_refused(model):
    for answer in (lambda: model.distribution(X).certify(), lambda: model.loo_log_prob(X, Y)):
        with pytest.raises(ValueError, match="labels share the weights"):
            answer()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"laplace": True}, "laplace=True"),
        ({"C": "evidence"}, "C='evidence'"),
        ({"kernel": lambda A, B: A @ B.T}, "treat all columns alike"),
        ({"label_kernel": Symmetry(LABELS, {"other": COLUMNS})}, "names of inputs"),
        ({"label_kernel": Symmetry(LABELS, np.array(COLUMNS)[:, :6].tolist())}, "array of 6 columns"),
        ({"label_kernel": Symmetry({name: LABELS[name] for name in LABELS if name != "none"})}, "has the label 'none'"),
    ],
)
def test_what_cannot_be_combined_is_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        ChainCRF(**{"kernel": "rbf", "label_kernel": CHORDS} | parameters).fit(X, Y)


@pytest.mark.parametrize("estimator", [SegmentCRF, KernelClassifier])
def test_estimators_without_symmetries_say_so(estimator):
    with pytest.raises(ValueError, match=f"{estimator.__name__} has no structure"):
        estimator(label_kernel=CHORDS).fit(X, Y)


@pytest.mark.parametrize(
    ("labels", "columns", "message"),
    [
        ({}, None, "a dict from each label"),
        ({"a": ["b", "a"], "b": ["a", "b"]}, None, "the label itself as the first"),
        ({"a": ["a", "b"], "b": ["b", "b"]}, None, "moves no label to 'a'"),
        ({"a": ["a", "b"], "b": ["b", "a"]}, [[0, 1]], "has 1 rows: expected 2"),
        ({"a": ["a", "b"], "b": ["b", "a"]}, [[0, 1], [1, 1]], "no permutation"),
        ({"a": ["a", "b"], "b": ["b", "a"]}, [[1, 0], [0, 1]], "no permutation"),
        ({"a": ["a", "b", "b"], "b": ["b", "a", "a"]}, None, "move labels and columns in the same way"),
        ({"a": ["a", "b"], "b": ["b", "c"], "c": ["c", "a"]}, None, "expected a group"),
    ],
)
def test_what_is_no_group_is_refused(labels, columns, message):
    with pytest.raises(ValueError, match=message):
        Symmetry(labels, columns)


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("sees_inputs", [True, False])
def test_the_factor_of_orbits_is_that_of_the_definition(nodes, sees_inputs):
    classes = list(LABELS)
    images = CHORDS.images(classes)
    k_y = Orbits(images, nodes, sees_inputs)
    joint = list(itertools.product(range(len(classes)), repeat=nodes))
    A = k_y.factor
    for y, z in itertools.product(range(k_y.L), repeat=2):
        moves = [g for g in range(G) if tuple(images[g][list(joint[z])]) == joint[y]]
        if not sees_inputs:
            assert A[y] @ A[z] == pytest.approx(len(moves))
            continue
        # The label y reads row g of the features, and z row h, where g h^-1 makes y of z: g - h = k for rotations.
        table = np.einsum("go,ho->gh", A[y].reshape(G, -1), A[z].reshape(G, -1))
        by_move = [sum(table[g, (g - k) % G] for g in range(G)) for k in range(G)]
        assert by_move == pytest.approx([float(k in moves) for k in range(G)])
    R = np.random.default_rng(1).normal(size=(4, k_y.L))
    assert k_y.adjoint(R) == pytest.approx(R @ A)
    (again,) = label_kernels_from_config(label_kernels_to_config([k_y])[0])
    assert np.array_equal(again.factor, A)
    assert k_y.norm == pytest.approx(np.linalg.eigvalsh(k_y.gram)[-1])


def test_damaged_orbits_and_views_are_refused():
    config = Orbits(CHORDS.images(list(LABELS)), 2).to_config()
    for name, value in (("images", [[0, 0]]), ("images", "x"), ("nodes", 40)):
        with pytest.raises(ValueError, match="expected"):
            Orbits.from_config({**config, name: value})
    with pytest.raises(ValueError, match="no permutation"):
        Views.from_config([[1, 0]])
