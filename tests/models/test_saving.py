import os
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from safetensors import safe_open
from sklearn.gaussian_process.kernels import RBF

import kernelcrf
from chain_fits import of_tokens_and_steps
from golden_models import FOLDER
from kernelcrf import ChainCRF, Input, ModelFileError
from kernelcrf.datasets import make_sequences
from kernelcrf.persistence.model_file import HEADER
from model_files import damaged, rewritten


@pytest.fixture(scope="module")
def data():
    return make_sequences(30, random_state=0)


def fitted(data, **parameters):
    return ChainCRF(**{"C": 1.0, "n_components": 15, "random_state": 0, **parameters}).fit(data.X, data.y)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"kernel": "linear"},
        {"inputs": of_tokens_and_steps(n_components=15), "n_components": 500},
        {"inputs": {"tokens": "linear", "steps": Input(RBF(0.5), scores="steps")}, "n_components": 500},
        {"kernel": RBF(0.7), "label_kernel": "centred"},
        {"constraints": [(0, 0), (0, 1), (1, 1), (1, 2), (2, 2), (2, 0), (1, 0), (2, 1), (0, 2)], "n_jobs": 2},
        {"label_kernel": np.eye(3) + 0.5, "class_weight": "balanced", "decoding": "marginal"},
    ],
)
def test_a_loaded_model_predicts_the_same_bits(data, tmp_path, parameters):
    model = fitted(data, **parameters)
    model.save(tmp_path / "model.kcrf")
    loaded = kernelcrf.load(tmp_path / "model.kcrf")
    for a, b in zip(model.predict_proba(data.X), loaded.predict_proba(data.X), strict=True):
        np.testing.assert_array_equal(a, b)
    assert loaded.certificate_ == model.certificate_
    assert loaded.n_iter_ == model.n_iter_
    np.testing.assert_array_equal(loaded.objective_curve_, model.objective_curve_)
    assert [labels.tolist() for labels in loaded.predict(data.X)] == [
        labels.tolist() for labels in model.predict(data.X)
    ]
    loaded.set_params(warm_start=True).fit(data.X, data.y)
    assert loaded.n_iter_ <= 1


def test_dicts_and_sparse_landmarks_survive_a_file(tmp_path):
    X = [[{"w": "a", "n": 1.5}, {"w": "b"}], [{"w": "b", "up": True}]] * 5
    y = [["X", "Y"], ["Y"]] * 5
    for parameters in ({"kernel": "linear"}, {"kernel": "rbf"}, {"kernel": "linear", "hash_features": 64}):
        model = ChainCRF(C=1.0, **parameters).fit(X, y)
        model.save(tmp_path / "m")
        for a, b in zip(model.predict_proba(X), kernelcrf.load(tmp_path / "m").predict_proba(X), strict=True):
            np.testing.assert_array_equal(a, b)
    sparse = ChainCRF("cosine", C=1.0).fit([sp.csr_array(np.eye(3))] * 3, [[0, 1, 1]] * 3)
    sparse.save(tmp_path / "s")
    np.testing.assert_array_equal(
        kernelcrf.load(tmp_path / "s").predict_proba([sp.csr_array(np.eye(3))])[0],
        sparse.predict_proba([sp.csr_array(np.eye(3))])[0],
    )


def test_a_fresh_process_predicts_the_same_bits(data, tmp_path):
    model = fitted(data)
    model.save(tmp_path / "model")
    np.save(tmp_path / "x.npy", data.X[0])
    code = (
        "import sys, numpy, kernelcrf; folder = sys.argv[1]; "
        "p = kernelcrf.load(folder + '/model').predict_proba([numpy.load(folder + '/x.npy')])[0]; "
        "numpy.save(folder + '/p.npy', p)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    np.testing.assert_array_equal(np.load(tmp_path / "p.npy"), model.predict_proba([data.X[0]])[0])


@pytest.mark.parametrize("count", [600, pytest.param(10_000, marks=pytest.mark.slow)])
def test_damaged_files_raise_and_do_nothing_else(data, tmp_path, count):
    """Truncated, bit-flipped and spliced: a library error, or a file that still says what a model is."""
    model = fitted(data)
    model.save(tmp_path / "model")
    blob = (tmp_path / "model").read_bytes()
    rng = np.random.default_rng(0)
    target, refused = tmp_path / "damaged", 0
    tracemalloc.start()
    for _ in range(count):
        target.write_bytes(damaged(blob, rng))
        try:
            kernelcrf.load(target)
        except ModelFileError:
            refused += 1
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert refused > 0.7 * count
    assert peak < 2**30


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: {**c, "version": 99}, "the format version is 99, expected 1 or 2 or 3"),
        (lambda c: {**c, "format": "other"}, "the file has no kernelcrf model"),
        (lambda c: {**c, "estimator": "Evil"}, "estimator 'Evil'"),
        (lambda c: with_kernel(c, {"class": "eval", "parameters": {}}), "is inconsistent"),
        (lambda c: {**c, "parameters": {**c["parameters"], "extra": 1}}, "extra"),
        (lambda c: {**c, "labels": {"kind": "i", "classes": [0, 1]}}, "expected"),
        (
            lambda c: {**c, "inputs": {"kind": "dense", "n_features": 10**12}},
            "the sizes of a feature map do not match",
        ),
        (lambda c: {**c, "certificate": {**c["certificate"], "lower_bound": 1e9}}, "is inconsistent"),
        (lambda c: [], "the file has no kernelcrf model"),
    ],
)
def test_headers_that_lie_are_refused(data, tmp_path, change, message):
    fitted(data).save(tmp_path / "model")
    rewritten(tmp_path / "model", change_config=change)
    with pytest.raises(ModelFileError, match=message):
        kernelcrf.load(tmp_path / "model")


@pytest.mark.parametrize(
    "change",
    [
        lambda a: {**a, "theta": a["theta"][:-1].copy()},
        lambda a: {**a, "theta": np.full_like(a["theta"], np.nan)},
        lambda a: {**a, "theta": a["theta"].astype(np.int64)},
        lambda a: {**a, "map 0.R": a["map 0.R"][:, :-1].copy()},
        lambda a: {name: array for name, array in a.items() if name != "map 0.landmarks"},
    ],
)
def test_tensors_that_do_not_fit_are_refused(data, tmp_path, change):
    fitted(data).save(tmp_path / "model")
    rewritten(tmp_path / "model", change_arrays=change)
    with pytest.raises(ModelFileError):
        kernelcrf.load(tmp_path / "model")


def test_what_a_file_cannot_hold_is_named_and_nothing_is_written(data, tmp_path):
    model = fitted(data, kernel=lambda A, B: A @ B.T + 1.0)
    with pytest.raises(TypeError, match="a callable cannot be written to a file"):
        model.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError):
        kernelcrf.load(tmp_path / "nothing")


def test_metadata_travels_with_the_model_and_through_a_warm_start(data, tmp_path):
    model = fitted(data)
    assert model.metadata_ == {}
    model.metadata_["unit"] = ["token", 1.5, None]
    model.save(tmp_path / "model")
    loaded = kernelcrf.load(tmp_path / "model")
    assert loaded.metadata_ == {"unit": ["token", 1.5, None]}
    np.testing.assert_array_equal(loaded.gap_curve_, model.gap_curve_)
    assert loaded.set_params(warm_start=True).fit(data.X, data.y).metadata_ == {"unit": ["token", 1.5, None]}
    assert loaded.set_params(warm_start=False).fit(data.X, data.y).metadata_ == {}
    model.metadata_["unit"] = object()
    with pytest.raises(TypeError, match=r"metadata_=.*: expected a dict from names to plain values"):
        model.save(tmp_path / "model")
    assert kernelcrf.load(tmp_path / "model").metadata_ == {"unit": ["token", 1.5, None]}


def test_a_writer_that_is_killed_leaves_the_old_model(data, tmp_path):
    """The process ends without warning in the middle of its writing."""
    fitted(data).save(tmp_path / "model")
    before = (tmp_path / "model").read_bytes()
    code = (
        "import os, sys; from kernelcrf.persistence import whole_file\n"
        "with whole_file(sys.argv[1]) as file:\n    file.write(b'half'); file.flush(); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path / "model")], check=False).returncode == 9
    assert (tmp_path / "model").read_bytes() == before
    kernelcrf.load(tmp_path / "model").save(tmp_path / "model")
    assert os.listdir(tmp_path) == ["model"]
    with pytest.raises(FileNotFoundError, match="the folder of this file does not exist"):
        fitted(data).save(tmp_path / "nowhere" / "model")


def test_parameters_come_back_as_they_were(data, tmp_path):
    weights = {0: 1.0, 1: 2.0, 2: np.float64(0.5)}
    model = fitted(data, class_weight=weights, n_components=np.int64(15), C=np.float32(2.0))
    model.save(tmp_path / "model")
    loaded = kernelcrf.load(tmp_path / "model").get_params()
    assert loaded == {**model.get_params(), "class_weight": weights}


def test_a_posterior_is_read_with_the_factor_that_it_was_found_with(data, tmp_path):
    """Equal eigenvalues leave the factor of a label kernel open: another machine may find another one."""
    model = fitted(data, label_kernel=np.eye(3) + 0.5, laplace=True)
    model.save(tmp_path / "model")
    loaded = kernelcrf.load(tmp_path / "model")
    kernels = [m.model_.layout.terms[0].k_y for m in (model, loaded)]
    np.testing.assert_array_equal(kernels[0].factor, kernels[1].factor)
    assert kernels[1].known_factor is not None
    for a, b in zip(*(m.predict_proba(data.X, posterior="laplace") for m in (model, loaded)), strict=True):
        np.testing.assert_array_equal(a, b)

    def turned(config):
        label_kernel = config["label_kernels"][0]
        label_kernel["factor"] = (1.01 * np.array(label_kernel["factor"])).tolist()
        return config

    rewritten(tmp_path / "model", change_config=turned)
    with pytest.raises(ModelFileError, match="is not a factor of the label kernel"):
        kernelcrf.load(tmp_path / "model")


# The names of the list of terms, and of the arrays of the first feature map, in files of each version.
NAMES = {"v1": ("layout", "map"), "v3": ("terms", "map 0")}


@pytest.mark.parametrize("version", NAMES)
@pytest.mark.parametrize(
    ("kind", "change_config", "change_arrays"),
    [
        # Indices beyond the columns were read by compiled products, wherever in memory they led.
        ("sparse-rbf", None, {"{map}.landmarks.indices": lambda x: x + 10**9}),
        ("sparse-rbf", None, {"{map}.landmarks.indptr": lambda x: np.append(x[:-1], 0)}),
        ("rbf", None, {"{map}.landmarks": lambda x: np.full_like(x, np.inf)}),
        ("rbf", None, {"{map}.landmarks": lambda x: x.astype(np.int64)}),
        ("laplace", None, {"posterior.G": lambda x: np.tril(x, -1)}),
        ("rbf", lambda c, _: {**c, "parameters": {**c["parameters"], "decoding": "best"}}, None),
        ("label-matrix", lambda c, terms: with_labels(c, terms, 10**7), None),
        ("rbf", lambda c, terms: {**c, terms: [{**one, "n": 10**18} for one in c[terms]]}, None),
        ("gaussian-process", lambda c, _: with_kernel(c, {"class": "RBF", "parameters": {"length_scale": "w"}}), None),
        ("gaussian-process", lambda c, _: with_kernel(c, {"class": "Exponentiation", "parameters": {}}), None),
        ("poly", lambda c, _: with_kernel(c, "poly", degree=10**15, coef0=2.0), None),
    ],
)
def test_models_that_would_do_harm_when_they_predict_are_refused(tmp_path, kind, change_config, change_arrays, version):
    path, (terms, feature_map) = tmp_path / "model", NAMES[version]
    path.write_bytes((FOLDER / version / f"{kind}.kcrf").read_bytes())
    kernelcrf.load(path)

    def changed(arrays):
        changes = {name.format(map=feature_map): change for name, change in (change_arrays or {}).items()}
        return arrays | {name: change(arrays[name]) for name, change in changes.items()}

    rewritten(path, change_config and (lambda config: change_config(config, terms)), changed)
    with pytest.raises(ModelFileError):
        kernelcrf.load(path)


def with_labels(config, terms, L):
    """The config with another number of labels in all label kernels."""
    for one in config["label_kernels"] if terms == "terms" else [term["label_kernel"] for term in config[terms]]:
        one["L"] = L
    return config


def with_kernel(config, kernel, **parameters):
    """The config with another kernel of the first feature map."""
    feature_map = config["map"] if "map" in config else config["maps"][0]
    feature_map["kernel"] |= {"kernel": kernel, **parameters}
    return config


@pytest.mark.parametrize("setting", [{"checkpoint": "elsewhere.ckpt"}, {"engine": "tcp://other"}, {"engine": None}])
def test_a_file_says_neither_where_a_later_fit_runs_nor_where_it_writes(data, tmp_path, setting):
    model = fitted(data, checkpoint=str(tmp_path / "run.ckpt"))
    model.save(tmp_path / "model")
    loaded = kernelcrf.load(tmp_path / "model")
    assert loaded.checkpoint is None
    assert loaded.engine is None
    rewritten(tmp_path / "model", lambda config: {**config, "parameters": {**config["parameters"], **setting}})
    with pytest.raises(ModelFileError, match=f"the file sets {next(iter(setting))}, which a model file must not do"):
        kernelcrf.load(tmp_path / "model")


def test_many_long_feature_names_are_saved_and_loaded(tmp_path):
    """As JSON in the header these names took more than the 100 MB that safetensors reads."""
    names = [f"U:w[{i}]=" + chr(0x4E00 + i) * 60_000 for i in range(250)]
    X, y = [[[name] for name in names]], [["a", "b"] * 125]
    model = ChainCRF("linear", tol=0.5, C=1.0).fit(X, y)
    model.save(tmp_path / "model")
    loaded = kernelcrf.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(X)[0], model.predict_proba(X)[0])
    assert (loaded.model_.reader.feature_names == sorted(names)) is True  # without a diff of 15 million letters
    with safe_open(tmp_path / "model", framework="numpy") as file:
        assert len(file.metadata()["config"]) < 10_000


def test_labels_constraints_and_label_kernels_of_any_number_stay_out_of_the_header(tmp_path):
    labels = [f"label {i}" for i in range(80)]
    pairs = [(a, b) for a in labels for b in labels]
    model = ChainCRF(
        "linear", max_iter=1, tol=0.9, classes=labels, constraints=pairs, label_kernel=np.eye(80) + 0.5, C=1.0
    )
    model.fit([np.eye(80)], [labels]).save(tmp_path / "model")
    loaded = kernelcrf.load(tmp_path / "model")
    assert loaded.classes_.tolist() == model.classes_.tolist()
    assert loaded.constraints == [list(pair) for pair in pairs]
    np.testing.assert_array_equal(loaded.predict_proba([np.eye(80)])[0], model.predict_proba([np.eye(80)])[0])
    with safe_open(tmp_path / "model", framework="numpy") as file:
        assert len(file.metadata()["config"]) < 10_000


def test_metadata_that_is_too_large_is_refused_before_anything_is_written(data, tmp_path):
    model = fitted(data)
    model.save(tmp_path / "model")
    model.metadata_["runs"] = [None, "x" * 50] * 300_000
    with pytest.raises(ValueError, match=r"the header would have .* for 'metadata': expected at most 16,777,216"):
        model.save(tmp_path / "model")
    assert kernelcrf.load(tmp_path / "model").metadata_ == {}
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    model.metadata_["runs"] = [f"run {i} " + "x" * 50 for i in range(300_000)]
    model.save(tmp_path / "model")
    assert kernelcrf.load(tmp_path / "model").metadata_ == model.metadata_


LIMIT = HEADER // 4
HEADERS = {
    "refused": ("[" + "[]," * 5_000_000 + "[]]", "the header has 15,"),
    "lists": ("[" + "[]," * (LIMIT // 3 - 20) + "[]]", "the file has no kernelcrf model"),
    "objects": ("[" + '{\\"\\":{}},' * (LIMIT // 10 - 20) + "[]]", "the file has no kernelcrf model"),
}
LOAD_IN_200_MB = f"""
import resource, sys
from kernelcrf import ModelFileError, load
from kernelcrf.persistence import model_file

model_file.HEADER = {LIMIT}
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (200 << 20),) * 2)
for path in sys.argv[1:]:
    try:
        load(path)
    except ModelFileError as error:
        print(error)
"""


def test_a_header_takes_bounded_memory(tmp_path):
    """15 MB of JSON took 450 MB; the worst that a quarter of the limit lets pass takes less than 200 MB."""
    headers = {name: '{"__metadata__":{"config":"' + text + '"}}' for name, (text, _) in HEADERS.items()}
    entries = [f'"{i:07d}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}},' for i in range(LIMIT // 60)]
    headers["tensors"] = "{" + "".join(entries) + '"__metadata__":{"config":"{}"}}'
    for name, header in headers.items():
        (tmp_path / name).write_bytes(len(header).to_bytes(8, "little") + header.encode())
    paths = [str(tmp_path / name) for name in headers]
    done = subprocess.run([sys.executable, "-c", LOAD_IN_200_MB, *paths], capture_output=True, text=True, check=False)
    expected = [*(message for _, message in HEADERS.values()), "the file has no kernelcrf model"]
    found = done.stdout.splitlines()
    assert len(found) == len(expected), done.stderr[-300:]
    assert all(message in line for message, line in zip(expected, found, strict=True)), found
