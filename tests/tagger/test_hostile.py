"""Files that are damaged, or claim more than they hold, are refused by the tagger, or their models answer."""

import json
import pickle

import numpy as np
import pytest
from safetensors import safe_open

import golden_models
from forged_files import FACTORS, check_forgeries, content, forge, limited, most_bytes
from kernelcrf import ChainCRF, ModelFileError
from kernelcrf.arrays import is_sparse
from kernelcrf.tagger.tagger import Tagger
from model_files import damaged, rewritten
from tagger.test_golden import FOLDER

pytest.importorskip("resource", reason="the limits of a process need POSIX")
OFTEN = ("constraints", "dicts-hashed", "dicts-many", "dicts-rbf", "steps", "label-matrix", "pipeline", "sparse-rbf")
# What the content of a file and inputs that do not fit may cause; all else is a fault.
ERRORS = (ValueError, TypeError)


def answer(path, X):
    """Open the file and ask for everything; return "answered", or the reason of the refusal."""
    with limited(most_bytes(path)), np.errstate(all="ignore"):
        try:
            tagger = Tagger.open(path)
        except ModelFileError as error:
            return str(error)
        try:
            tagger.tag(X)
            tagger.probabilities(X)
            tagger.spans(X)
        except ERRORS as error:
            # A forged number of columns: the inputs do not fit, and the error says so.
            return f"refused inputs: {error}"
        return "answered"


@pytest.mark.parametrize("factors", [(10**6,), pytest.param(FACTORS, marks=pytest.mark.slow)], ids=["one", "all"])
@pytest.mark.parametrize("name", OFTEN)
def test_no_integer_of_a_header_takes_memory(name, factors, tmp_path):
    x, path = golden_models.inputs(name)[0], FOLDER / f"{name}.kcrf"
    assert answer(path, x) == "answered"
    assert check_forgeries(path, tmp_path / "forged", lambda forged: answer(forged, x), factors) > 0


@pytest.mark.parametrize("name", OFTEN)
def test_damaged_files_are_refused_or_answer(name, tmp_path):
    rng, x = np.random.default_rng(0), golden_models.inputs(name)[0]
    blob, refused = (FOLDER / f"{name}.kcrf").read_bytes(), 0
    for _ in range(60):
        (tmp_path / "damaged").write_bytes(damaged(blob, rng))
        reason = answer(tmp_path / "damaged", x)
        refused += reason != "answered"
        assert "not enough memory" not in reason
    assert refused > 10


def test_shapes_of_tensors_beyond_the_file_are_refused(tmp_path):
    blob = (FOLDER / "dicts-many.kcrf").read_bytes()
    n = int.from_bytes(blob[:8], "little")
    head = json.loads(blob[8 : 8 + n])
    for name in set(head) - {"__metadata__"}:
        for factor in FACTORS:
            forged = json.loads(json.dumps(head))
            forged[name]["shape"][0] *= factor
            text = json.dumps(forged).encode()
            (tmp_path / "forged").write_bytes(len(text).to_bytes(8, "little") + text + blob[8 + n :])
            assert "not a model file that this version can read" in answer(tmp_path / "forged", None)


def test_tensors_of_one_model_do_not_fit_another(tmp_path):
    """Each tensor of a file is replaced by one of another size, type or sign."""
    for name in ("rbf", "sparse-rbf", "dicts-many", "steps", "pipeline", "constraints"):
        x = golden_models.inputs(name)[0]
        with safe_open(FOLDER / f"{name}.kcrf", framework="numpy") as file:
            names = [key for key in file.keys() if key not in ("gap_curve", "objective_curve", "landmark_positions")]  # noqa: SIM118
        for key in names:
            for change in (lambda a: a[:-1], lambda a: a.astype(bool), lambda a: -a - 1, lambda a: np.repeat(a, 2, 0)):
                (tmp_path / "forged").write_bytes((FOLDER / f"{name}.kcrf").read_bytes())
                config, arrays = content(tmp_path / "forged")
                if key not in arrays:
                    continue
                try:
                    arrays[key] = np.ascontiguousarray(change(arrays[key]))
                except TypeError:
                    continue
                forge(tmp_path / "forged", config, arrays)
                answer(tmp_path / "forged", x)


def test_many_labels_without_transitions_are_refused(tmp_path):
    config, arrays = content(FOLDER / "dicts-linear.kcrf")
    config["labels"]["classes"] = [f"label{i}" for i in range(3000)]
    for label_kernel in config["label_kernels"]:
        label_kernel["L"] = 3000 ** {3: 1, 9: 2}[label_kernel["L"]]
    forge(tmp_path / "many", config, arrays)
    assert "the first prediction of this ChainCRF would take" in answer(tmp_path / "many", [{}])


@pytest.mark.parametrize(
    ("name", "change", "match"),
    [
        ("rbf", {"base_scores": ["tokens"]}, "fitted with base_scores"),
        ("rbf", {"estimator": "Robot"}, "a model of 'Robot'"),
        ("rbf", {"parameters": {"decoding": "dice"}}, "decoding='dice', which kernelcrf-tagger does not know"),
        ("marginal", {"parameters": {"decoding": {"name": "f1"}}, "x": 1}, None),
        ("marginal", {"parameters": {"decoding": {"name": "span_cost"}}, "x": 1}, None),
    ],
)
def test_what_the_tagger_does_not_know_is_named(name, change, match, tmp_path):
    (tmp_path / "model").write_bytes((FOLDER / f"{name}.kcrf").read_bytes())
    rewritten(tmp_path / "model", lambda config: config | change)
    if match is None:
        tagger = Tagger.open(tmp_path / "model")
        with pytest.raises(ModelFileError, match="expected tags such as B-PER"):
            tagger.tag(golden_models.inputs(name)[0])
    else:
        with pytest.raises(ModelFileError, match=match):
            Tagger.open(tmp_path / "model")


def test_a_transformer_that_is_not_known_is_named(tmp_path):
    (tmp_path / "model").write_bytes((FOLDER / "pipeline.kcrf").read_bytes())

    def change(config):
        config["steps"][0]["transformer"]["steps"][0]["class"] = "QuantileTransformer"
        return config

    rewritten(tmp_path / "model", change)
    with pytest.raises(ModelFileError, match="transformer 'QuantileTransformer', which kernelcrf-tagger does not know"):
        Tagger.open(tmp_path / "model")


def test_inputs_of_golden_files_are_of_all_kinds():
    kinds = [golden_models.inputs(name)[0] for name in OFTEN]
    assert {isinstance(x, list) for x in kinds} == {True, False}
    assert any(is_sparse(x) for x in kinds)


def test_files_and_tokens_of_another_kind_are_named(tmp_path):
    X, y = [[{"a": "b"}, {"a": "c"}], [{"a": "c"}]], [["A", "B"], ["B"]]
    crf = ChainCRF(C=1.0, decoding="marginal").fit(X, y)
    with pytest.warns(UserWarning, match="does not store decoding='marginal': .* Use a .kcrf file"):
        crf.save(tmp_path / "model.crfsuite")
    with pytest.raises(ModelFileError, match=r"a model of CRFsuite. Open it with kernelcrf.load"):
        Tagger.open(tmp_path / "model.crfsuite")
    (tmp_path / "model.pkl").write_bytes(pickle.dumps(crf))
    with pytest.raises(ModelFileError, match="looks like a pickle"):
        Tagger.open(tmp_path / "model.pkl")
    crf.save(tmp_path / "model.kcrf")
    with pytest.raises(TypeError, match=r"a feature dict in the place of a feature name .* Remove one list"):
        Tagger.open(tmp_path / "model.kcrf").tag([X[0]])
    with pytest.raises(TypeError, match="a list of feature dicts in the place of a token"):
        crf.predict([[X[0]]])
