"""Checkpoints that are damaged, or forged, end with the error of model files."""

import numpy as np
import pytest
import scipy.sparse as sp

from chain_fits import of_tokens_and_steps
from kernelcrf import ChainCRF
from kernelcrf.basis import Landmarks
from kernelcrf.datasets import make_sequences
from kernelcrf.persistence import ModelFileError
from model_files import damaged, rewritten

SETTINGS = {
    "dense": {"inputs": of_tokens_and_steps(gamma=0.5, n_components=8), "random_state": 0},
    "sparse": {"kernel": "rbf", "gamma": 0.5, "n_components": Landmarks(8, "random"), "random_state": 0},
    "linear": {"kernel": "linear", "solver": "lbfgs"},
}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(rng.integers(2, 7), 4)) for _ in range(12)]
    return X, [np.where(x[:, 0] > 0, "up", "down").tolist() for x in X]


def crf(kind, path, data):
    """An estimator with a checkpoint, and its data."""
    X, y = data
    model = ChainCRF(**SETTINGS[kind], C=10.0, tol=1e-9, checkpoint=path)
    return model, X if kind == "dense" else [sp.csr_array(np.where(x > 0, x, 0)) for x in X], y


@pytest.fixture
def path(request, data, tmp_path):
    """The checkpoint of a fit that was cut short."""
    model, X, y = crf(request.param, tmp_path / "run", data)
    with pytest.warns(match="max_iter"):
        model.set_params(max_iter=3).fit(X, y)
    return tmp_path / "run"


def put(name, change):
    def changed(arrays):
        arrays[name] = change(arrays[name])
        return arrays

    return None, changed


def within(name, place, value):
    def change(array):
        array = array.copy()
        array.flat[place] = value
        return array

    return put(name, change)


def said(**changes):
    return lambda config: {**config, **changes}, None


def map_with(**changes):
    return lambda config: {**config, "maps": [{**config["maps"][0], **changes}, *config["maps"][1:]]}, None


def first_map(value):
    return lambda config: {**config, "maps": [value, *config["maps"][1:]]}, None


FORGED = {
    "indices beyond the columns": ("sparse", *within("map 0.landmarks.indices", 0, 2**30)),
    "indices below zero": ("sparse", *within("map 0.landmarks.indices", 0, -(2**30))),
    "row pointers beyond the data": ("sparse", *within("map 0.landmarks.indptr", -1, 2**30)),
    "row pointers that fall": ("sparse", *within("map 0.landmarks.indptr", 1, 2**30)),
    "row pointers that end at zero": ("sparse", *within("map 0.landmarks.indptr", -1, 0)),
    "more columns": ("sparse", *map_with(d=2**40)),
    "landmarks that are not finite": ("dense", *within("map 0.landmarks", 3, np.nan)),
    "landmarks of other columns": ("dense", *put("map 0.landmarks", lambda B: B[:, :2].copy())),
    "landmarks of edges of other columns": ("dense", *put("map 1.landmarks", lambda B: B[:, :2].copy())),
    "a factor that is singular": ("dense", *within("map 0.R", 0, 0.0)),
    "a factor so small that features overflow": ("dense", *within("map 0.R", 0, 1e-300)),
    "a factor of another size": ("dense", *put("map 0.R", lambda R: R[:-1, :-1].copy())),
    "weights that are not finite": ("linear", *within("theta", 0, np.inf)),
    "weights that overflow": ("linear", *within("theta", 0, 1e300)),
    "fewer weights": ("linear", *put("theta", lambda theta: theta[:-1])),
    "weights of another type": ("linear", *put("theta", lambda theta: theta.astype(np.int32))),
    "no weights": ("linear", None, lambda arrays: {name: arrays[name] for name in arrays if name != "theta"}),
    "a history of another shape": ("linear", *put("history", lambda rows: rows[:, :4].copy())),
    "no history": ("linear", *put("history", lambda rows: rows[:0])),
    "a history that is not finite": ("linear", *within("history", 0, np.nan)),
    "seconds below zero": ("linear", *within("history", -1, -1.0)),
    "columns that are no number": ("linear", *map_with(n="4")),
    "columns that are a truth": ("linear", *map_with(n=True)),
    "a map of no kind": ("linear", *first_map(None)),
    "another kernel": ("dense", *map_with(kernel={"kernel": "linear", "gamma": None})),
    "a map of the linear kernel": ("dense", *first_map({"map": "primal", "n": 4})),
    "no maps": ("dense", *said(maps=[])),
    "one map too many": ("linear", *said(maps=[{"map": "primal", "n": 4}] * 2)),
    "maps that are no list": ("linear", *said(maps=7)),
    "a problem that is a list": ("linear", *said(problem=[])),
}


@pytest.mark.parametrize(
    ("path", "config", "arrays"),
    [pytest.param(kind, config, arrays, id=name) for name, (kind, config, arrays) in FORGED.items()],
    indirect=["path"],
)
def test_a_forged_checkpoint_is_refused(request, data, path, config, arrays):
    kind = next(one for name, (one, *_) in FORGED.items() if f"[{name}]" in request.node.name)
    rewritten(path, config, arrays)
    model, X, y = crf(kind, path, data)
    with pytest.raises(ModelFileError, match="run: ") as heard:
        model.fit(X, y)
    assert "\n" not in str(heard.value)
    assert len(str(heard.value)) < 600


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("path", ["dense"], indirect=True)
def test_damaged_checkpoints_are_refused_or_go_on(data, path):
    blob, rng = path.read_bytes(), np.random.default_rng(0)
    model, X, y = crf("dense", path, data)
    whole = ChainCRF(**SETTINGS["dense"], C=10.0, tol=1e-9).fit(X, y).certificate_
    errors = []
    for _ in range(60):
        path.write_bytes(damaged(blob, rng))
        try:
            model.fit(X, y)
        except ValueError as error:
            errors.append(error)
        else:
            assert model.certificate_.relative_gap <= 1e-9 or model.certificate_.status != "optimal"
    assert len(errors) >= 40
    texts = ("differs in", "did not store")
    assert all(isinstance(error, ModelFileError) or any(text in str(error) for text in texts) for error in errors)
    path.write_bytes(blob)
    assert model.fit(X, y).certificate_.objective == pytest.approx(whole.objective, rel=1e-8)


def test_a_damaged_checkpoint_at_a_url_is_named_by_its_url(data):
    fsspec = pytest.importorskip("fsspec")
    with fsspec.open("memory://damaged/run", "wb") as file:
        file.write(b"no checkpoint")
    model, X, y = crf("linear", "memory://damaged/run", data)
    with pytest.raises(ModelFileError, match=r"^memory://damaged/run: not a model file"):
        model.fit(X, y)


def test_a_folder_is_refused_by_the_name_of_the_parameter(tmp_path):
    data = make_sequences(3, random_state=0)
    with pytest.raises(ValueError, match=r"checkpoint=.* is a folder"):
        ChainCRF("linear", checkpoint=tmp_path, C=1.0).fit(data.X, data.y)
