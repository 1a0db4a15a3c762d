"""Every estimator goes to a file and comes back, by one `save` and one `load`."""

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.gaussian_process.kernels import RBF

import kernelcrf
from kernelcrf import GraphCRF, KernelClassifier, MarkovNetwork, ModelFileError, MultiLabelCRF, TemperatureScaling
from kernelcrf.datasets import make_sequences
from kernelcrf.kernels import Polynomial
from model_files import damaged, rewritten

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(40, 3))
CLASSES = np.where(ROWS[:, 0] > 0.5, "up", np.where(ROWS[:, 1] > 0, "mid", "down"))
LABELS = (ROWS @ RNG.normal(size=(3, 4)) + RNG.normal(size=(40, 4)) > 0).astype(int)
CHAINS = make_sequences(12, random_state=0)
TABLE = np.array([(v % 2, v % 3, (v + v // 4) % 2) for v in RNG.integers(0, 60, size=80)])


def triangles(n=12):
    rng = np.random.default_rng(1)
    edges = np.array([[0, 1], [1, 2], [0, 2], [2, 3]])
    X = [(rng.normal(size=(4, 2)), edges, rng.normal(size=(4, 2))) for _ in range(n)]
    return X, [(x[0][:, 0] + 0.3 * rng.normal(size=4) > 0).astype(int) for x in X]


GRAPHS, NODE_LABELS = triangles()
BARE = [graph[:2] for graph in GRAPHS]

MODELS = {
    "classifier": lambda: KernelClassifier(n_components=10, random_state=0).fit(ROWS, CLASSES),
    "linear classifier": lambda: KernelClassifier("linear").fit(sp.csr_array(ROWS), CLASSES == "up"),
    "posterior": lambda: KernelClassifier(RBF(0.7), n_components=10, laplace=True, random_state=0).fit(ROWS, CLASSES),
    "weights": lambda: KernelClassifier(
        Polynomial(degree=2), class_weight={"up": 2.0, "mid": 1.0, "down": 1.0}, label_kernel="centred"
    ).fit(ROWS.astype(np.float32), CLASSES),
    "labels": lambda: MultiLabelCRF(n_components=10, random_state=0, laplace=True).fit(ROWS, LABELS),
    "labels, kernels on pairs": lambda: MultiLabelCRF(
        RBF(0.7), edge_kernel="linear", structure=[(0, 1), (2, 1)], decoding="marginal"
    ).fit(ROWS, LABELS.astype(np.int8)),
    "one label": lambda: MultiLabelCRF("linear").fit(ROWS, CLASSES == "up"),
    "missing labels": lambda: MultiLabelCRF("linear", structure="full").fit(
        sp.csr_array(ROWS), np.where(RNG.random(LABELS.shape) < 0.2, -1, LABELS)
    ),
    "graphs": lambda: GraphCRF(n_components=10, random_state=0).fit(BARE, NODE_LABELS),
    "graphs, kernels on edges": lambda: GraphCRF(
        "linear", edge_kernel=RBF(0.5), directed=True, cliques=("edges", "paths")
    ).fit(GRAPHS, NODE_LABELS),
    "searched graphs": lambda: GraphCRF("linear", edge_kernel="linear", cliques="auto", laplace=True).fit(
        BARE, NODE_LABELS
    ),
    "loopy": lambda: GraphCRF("linear", inference="loopy").fit(BARE, NODE_LABELS),
    "gibbs": lambda: GraphCRF("linear", inference="gibbs", random_state=3).fit(BARE, NODE_LABELS),
    "chains": lambda: GraphCRF("rbf", n_components=10, random_state=0).fit(CHAINS.X, CHAINS.y),
    "density": lambda: MarkovNetwork(laplace=True).fit(TABLE),
    "density of words": lambda: MarkovNetwork(structure="tree").fit(
        pd.DataFrame(
            {"a": np.where(TABLE[:, 0], "x", None), "b": np.where(TABLE[:, 1] > 1, "p", "q"), "c": TABLE[:, 2]}
        ).to_numpy()
    ),
    "density of numbers": lambda: MarkovNetwork("rbf", gamma=0.5, structure="full").fit(TABLE),
}


def inputs(model):
    if isinstance(model, GraphCRF):
        return {2: GRAPHS if model.edge_kernel is not None and model.directed else BARE}.get(model.n_features_in_)
    return ROWS


def outputs(model):
    """All that a model says of new samples, as a flat list of arrays."""
    if isinstance(model, MarkovNetwork):
        words = model.sample(5, random_state=0)
        found = [words, model.score_samples(words), *model.potentials_]
    else:
        X = (
            CHAINS.X
            if isinstance(model, GraphCRF) and model.model_.directed and model.edge_kernel is None
            else inputs(model)
        )
        found = [*model.predict(X), *model.predict_proba(X)]
        if getattr(model, "inference", None) != "gibbs" and not isinstance(model, KernelClassifier):
            found += [model.distribution(X).entropy(), *model.distribution(X).sample(3, random_state=0)]
        if isinstance(model, KernelClassifier) and model.laplace:
            found += [*model.latent_mean_and_variance(X), model.predict_proba(X, posterior="laplace")]
    names = ("coef_", "landmarks_", "edges_", "intercept_", "interactions_", "edge_potentials_", "classes_")
    return found + [getattr(model, name) for name in names if getattr(model, name, None) is not None]


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_a_loaded_model_is_the_saved_one(make, tmp_path):
    model = make()
    model.save(tmp_path / "model")
    loaded = kernelcrf.load(tmp_path / "model")
    assert type(loaded) is type(model)
    for a, b in zip(outputs(model), outputs(loaded), strict=True):
        assert np.asarray(a).dtype.kind == np.asarray(b).dtype.kind
        np.testing.assert_array_equal(a, b)
    for name, value in model.get_params(deep=False).items():
        assert name == "structure" or repr(getattr(loaded, name)) == repr(value)
    assert loaded.certificate_ == model.certificate_
    assert loaded.n_iter_ == model.n_iter_
    assert getattr(loaded, "search_", None) == getattr(model, "search_", None)
    if model.laplace:
        assert loaded.log_marginal_likelihood() == model.log_marginal_likelihood()
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "model").read_bytes()


def test_a_calibrated_model_is_saved_as_what_it_has_become(tmp_path):
    scaled = TemperatureScaling(MODELS["classifier"]()).fit(ROWS, CLASSES)
    assert scaled.temperature_ != 1
    scaled.estimator_.save(tmp_path / "model")
    np.testing.assert_array_equal(kernelcrf.load(tmp_path / "model").predict_proba(ROWS), scaled.predict_proba(ROWS))


def test_names_of_columns_are_kept_and_asked_for(tmp_path):
    frame = pd.DataFrame(ROWS, columns=["a", "b", "c"])
    for model in (KernelClassifier("linear").fit(frame, CLASSES), MultiLabelCRF("linear").fit(frame, LABELS)):
        model.save(tmp_path / "model")
        loaded = kernelcrf.load(tmp_path / "model")
        np.testing.assert_array_equal(loaded.predict(frame), model.predict(frame))
        with pytest.raises(ValueError, match="feature names should match"):
            loaded.predict(frame.rename(columns={"a": "z"}))


def test_a_graph_that_came_from_networkx_needs_none_to_load(tmp_path):
    graph = nx.path_graph(4)
    nx.set_node_attributes(graph, {v: [float(v), 1.0] for v in graph}, "x")
    model = GraphCRF("linear").fit([graph] * 3, [["a", "b", "b", "a"]] * 3)
    model.save(tmp_path / "model")
    loaded = kernelcrf.load(tmp_path / "model")
    plain = (np.array([[float(v), 1.0] for v in range(4)]), np.array([[0, 1], [1, 2], [2, 3]]))
    assert [p.tolist() for p in loaded.predict([plain])] == [p.tolist() for p in model.predict([graph])]


def test_callables_are_refused_before_anything_is_written(tmp_path):
    for model in (
        KernelClassifier(lambda A, B: A @ B.T + 1.0).fit(ROWS, CLASSES),
        MultiLabelCRF(lambda A, B: A @ B.T + 1.0).fit(ROWS, LABELS),
        GraphCRF("linear", edge_kernel=lambda A, B: A @ B.T + 1.0).fit(BARE, NODE_LABELS),
    ):
        with pytest.raises(TypeError, match="a callable cannot be written to a file"):
            model.save(tmp_path / "model")
        assert list(tmp_path.iterdir()) == []


def with_last_term(**changes):
    return lambda config: {**config, "terms": [*config["terms"][:-1], config["terms"][-1] | changes]}


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("labels", lambda c: {**c, "terms": c["terms"][:-1]}),
        ("labels", lambda c: {**c, "values": c["values"][:-1]}),
        ("labels", lambda c: {**c, "n_features": 7}),
        ("labels", lambda c: {**c, "search": {"rounds": [{}], "absent": [], "lower_bound": 0.0}}),
        ("labels", with_last_term(cliques="label 0")),
        ("labels", with_last_term(label_kernel=0)),
        ("labels", with_last_term(label_kernel=-1)),
        ("labels", lambda c: {**c, "label_kernels": c["label_kernels"][:-1]}),
        ("labels", lambda c: {**c, "label_kernels": [{"kind": "reversible", "n_labels": 10**6, "nodes": 32}] * 2}),
        ("labels", lambda c: {**c, "label_kernels": [{"kind": "magic", "L": 2}] * 2}),
        ("labels", lambda c: {**c, "maps": []}),
        ("labels", lambda c: {**c, "one_column": True}),
        ("graphs", lambda c: {**c, "labels": {"kind": "i", "classes": [0, 1, 2]}}),
        ("graphs", lambda c: {**c, "terms": c["terms"][1:]}),
        ("graphs", with_last_term(cliques="magic")),
        ("graphs", lambda c: {**c, "parameters": {**c["parameters"], "inference": "magic"}}),
        ("density", lambda c: {**c, "terms": c["terms"][:-1]}),
        ("density", lambda c: {**c, "categories": [{"type": "int64", "values": [0]}] * 3}),
        ("density", lambda c: {**c, "categories": [{"type": "complex256", "values": [0, 1]}] * 3}),
        ("classifier", lambda c: {**c, "classes": {"type": "str", "values": ["up"]}}),
        ("classifier", lambda c: {**c, "n_features": 4}),
        ("classifier", lambda c: {**c, "feature_names": ["a"]}),
    ],
)
def test_headers_that_lie_are_refused(name, change, tmp_path):
    MODELS[name]().save(tmp_path / "model")
    rewritten(tmp_path / "model", change_config=change)
    with pytest.raises(ModelFileError):
        kernelcrf.load(tmp_path / "model")


@pytest.mark.parametrize(
    ("name", "tensor", "value"),
    [
        ("labels", "edges", np.array([[0, 9]])),
        ("labels", "theta", np.zeros(3)),
        ("labels", "posterior.scale", np.zeros(3)),
        ("density", "theta", np.zeros(5)),
        ("density", "edges", np.zeros((2, 3), np.int64)),
        ("graphs", "map 0.R", np.eye(3)),
        ("classifier", "theta", np.zeros(20)),
    ],
)
def test_tensors_that_do_not_fit_are_refused(name, tensor, value, tmp_path):
    MODELS[name]().save(tmp_path / "model")
    rewritten(tmp_path / "model", change_arrays=lambda arrays: {**arrays, tensor: value})
    with pytest.raises(ModelFileError):
        kernelcrf.load(tmp_path / "model")


def test_sparse_landmarks_that_point_beyond_their_columns_are_refused(tmp_path):
    """Compiled products would read whatever memory they point to."""
    model = MultiLabelCRF("cosine").fit(sp.csr_array(ROWS), LABELS)
    model.save(tmp_path / "model")
    name = "map 0.landmarks.indices"
    rewritten(tmp_path / "model", change_arrays=lambda arrays: {**arrays, name: arrays[name] + 10**6})
    with pytest.raises(ModelFileError):
        kernelcrf.load(tmp_path / "model")


@pytest.mark.parametrize("name", ["classifier", "labels", "graphs", "density"])
def test_damaged_files_raise_and_do_nothing_else(name, tmp_path):
    model = MODELS[name]()
    model.save(tmp_path / "model")
    blob, rng, refused = (tmp_path / "model").read_bytes(), np.random.default_rng(0), 0
    for _ in range(150):
        (tmp_path / "damaged").write_bytes(damaged(blob, rng))
        try:
            kernelcrf.load(tmp_path / "damaged")
        except ModelFileError:
            refused += 1
    assert refused > 0.5 * 150


def replaced(config, place, value):
    """The config with another value at a place such as "certificate/status"."""
    *path, last = place.split("/")
    inner = config
    for name in path:
        inner = inner[int(name) if isinstance(inner, list) else name]
    inner[int(last) if isinstance(inner, list) else last] = value
    return config


@pytest.mark.parametrize(
    ("kind", "place", "values"),
    [
        ("posterior", "certificate/status", ["proven", None, {}, 1]),
        ("posterior", "certificate/objective", [None, "a", float("nan"), True]),
        ("posterior", "certificate/lower_bound", [None, "a", float("nan")]),
        ("posterior", "certificate/gap_full", ["a", float("nan")]),
        ("posterior", "laplace/log_evidence", [None, "a", float("inf"), []]),
        ("posterior", "laplace/error", [None, "a", True]),
        ("posterior", "C", [0, -1.0, float("nan"), "1"]),
        ("posterior", "n_iter", [-1, 1.5, True, "1", 2**70]),
        ("posterior", "n_features", [0, 3.0, None]),
        ("posterior", "feature_names", ["abc", {"a": 1, "b": 2, "c": 3}, ["a", "b"], ["a", "b", {"type": 3}]]),
        ("posterior", "terms/0/name", ["other", None, []]),
        ("posterior", "terms/0/cliques", ["steps", "other", None, 2]),
        ("posterior", "terms/0/input", ["other", None, 2]),
        ("posterior", "terms/0/C", [0, "1", None, float("nan")]),
        ("posterior", "terms/0/n", [1.0, "10", True, 11]),
        ("posterior", "maps/0/map", ["other", None, 1]),
        ("posterior", "maps/0/sparse", [None, "no", 0]),
        ("posterior", "classes/values", [["up", "up", "down"], ["up", None, "down"], ["up", 1, "down"]]),
        ("labels", "one_column", [None, 1, []]),
        ("labels", "search/absent", [{}, None, "a"]),
        ("labels", "search/lower_bound", [None, "a"]),
        ("labels", "search/rounds/0/objective", [None, "a", []]),
        ("labels", "terms/0/map", [-1, "0", 99]),
        ("labels", "terms/0/label_kernel", [-1, "0", None, 99, 1]),
        ("labels", "label_kernels/0/L", [1, 3, 2.5, "2", 10**9]),
        ("graphs", "terms/0/name", [None, 3]),
        ("graphs", "label_kernels/1/nodes", [1, 33, 10**9, "2"]),
        ("graphs", "seed", [-1, 1.5, "a"]),
        ("graphs", "directed", [None, "no", 0]),
        ("density", "categories/0/values", [[0, float("nan")], [0, "a"], [0, 0]]),
    ],
)
def test_values_that_no_model_has_are_refused(tmp_path, kind, place, values):
    MODELS[kind]().save(tmp_path / "model")
    before = (tmp_path / "model").read_bytes()
    kernelcrf.load(tmp_path / "model")
    for value in values:
        (tmp_path / "model").write_bytes(before)
        rewritten(tmp_path / "model", lambda config, value=value: replaced(config, place, value))
        with pytest.raises(ModelFileError):
            kernelcrf.load(tmp_path / "model")


def test_a_label_of_one_value_comes_back(tmp_path):
    Y = np.column_stack((np.full(len(ROWS), 5), LABELS[:, 0]))
    model = MultiLabelCRF("linear").fit(ROWS, Y)
    model.save(tmp_path / "model.kcrf")
    np.testing.assert_array_equal(kernelcrf.load(tmp_path / "model.kcrf").predict(ROWS), model.predict(ROWS))


def test_single_precision_leaves_no_certificate(tmp_path):
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(20, 2)), rng.integers(2, size=(20, 2))
    graphs = [(x[:, None], [[0, 1]]) for x in X]
    for model in (MultiLabelCRF("linear").fit(X, Y), GraphCRF("linear").fit(graphs, list(Y))):
        assert model.certificate_.status == "optimal"
        model.save(tmp_path / "rounded.kcrf", dtype="float32")
        certificate = kernelcrf.load(tmp_path / "rounded.kcrf").certificate_
        assert certificate.status == "rounded"
        assert np.isnan(certificate.objective)


def test_a_kernel_that_was_set_after_the_fit_does_not_spoil_the_file(tmp_path):
    rng = np.random.default_rng(0)
    graphs = [(rng.normal(size=(3, 1)), [[0, 1], [1, 2]]) for _ in range(8)]
    crf = GraphCRF("linear").fit(graphs, [rng.integers(2, size=3) for _ in graphs])
    before = crf.predict_proba(graphs)
    crf.set_params(kernel=RBF(1.0)).save(tmp_path / "changed.kcrf")
    for p, q in zip(kernelcrf.load(tmp_path / "changed.kcrf").predict_proba(graphs), before, strict=True):
        np.testing.assert_array_equal(p, q)
