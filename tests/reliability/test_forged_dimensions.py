"""Files that claim more than they hold are refused, or their models answer, in memory that the size of a file bounds.

Every integer of the header is multiplied, alone and together with those of the same meaning, and every shape of a
tensor. NumPy and Python tell `tracemalloc` what they allocate, whether it is touched or not. The limit of the process
is there for a fault: it ends in a MemoryError, not in the end of the machine.
"""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

import golden_models
from forged_files import FACTORS, check_forgeries, content, forge, integers, limited, most_bytes
from kernelcrf import (
    ChainCRF,
    GraphCRF,
    KernelClassifier,
    MarkovNetwork,
    ModelFileError,
    MultiLabelCRF,
    SegmentCRF,
    load,
    save,
)
from kernelcrf.crfsuite import CRFsuiteModel, StateWeights, TransitionWeights, write_model
from kernelcrf.models.crfsuite import from_crfsuite
from kernelcrf.preprocessing import PerToken
from kernelcrf.validation import ParameterError

pytest.importorskip("resource", reason="the limits of a process need POSIX")
pytestmark = pytest.mark.filterwarnings("ignore")

GOLDEN = Path(__file__).parents[1] / "golden" / "v3"
RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(12, 3))
SPARSE = [sp.random_array((4, 20), density=0.4, rng=np.random.default_rng(i), format="csr") for i in range(4)]
DENSE = [RNG.normal(size=(6, 2)) for _ in range(4)]
EDGES = np.array([[0, 1], [1, 2], [2, 3]])
CHAIN = {"C": 1.0, "gamma": 1.0, "n_components": 3, "random_state": 0}


def scaled_chain():
    scaler = StandardScaler(with_mean=False, with_std=False)
    return make_pipeline(PerToken(scaler), ChainCRF("rbf", **CHAIN)).fit(SPARSE, [[0, 1, 0, 1]] * 4)


MODELS = {
    "segments": lambda: SegmentCRF("linear", C=1.0).fit(DENSE, [[0, 0, 0, 1, 1, 0]] * 4),
    "free durations": lambda: SegmentCRF("rbf", **CHAIN, durations="free").fit(DENSE, [[0, 0, 0, 1, 1, 0]] * 4),
    "sparse landmarks": lambda: ChainCRF("rbf", **CHAIN).fit(SPARSE, [[0, 1, 0, 1]] * 4),
    "scaled pipeline": scaled_chain,
    "classifier": lambda: KernelClassifier("linear", C=1.0).fit(ROWS, np.arange(12) % 3),
    "label sets": lambda: MultiLabelCRF("linear", C=1.0).fit(ROWS, (ROWS > 0).astype(int)),
    "graphs": lambda: GraphCRF("linear", C=1.0).fit([(ROWS[i : i + 4], EDGES) for i in (0, 4, 8)], [[0, 1, 0, 1]] * 3),
    "table": lambda: MarkovNetwork(C=1.0).fit((ROWS > 0).astype(int)),
}


def answer(path, x):
    """Load the file, predict with the model, and return "answered"; if the file is refused, return the reason."""
    with limited(most_bytes(path)):
        return answer_without_limit(path, x)


def answer_without_limit(path, x):
    """Answer before memory is measured, because Numba takes more than the limit to compile a loop."""
    try:
        model = load(path)
    except ModelFileError as error:
        return str(error)
    if isinstance(model, MarkovNetwork):
        model.sample(1)
    elif fits(x, model):
        model.predict(widened(x, model))
        model.predict_proba(widened(x, model))
    return "answered"


def fits(x, model):
    """Return whether a model takes the inputs; dense inputs have too few columns for a model with forged columns."""
    return sp.issparse(x[0]) or not hasattr(x, "shape") or x.shape[1] == model.n_features_in_


def widened(x, model):
    """Return sparse sequences with the columns that the model expects."""
    if not sp.issparse(x[0]):
        return x
    n = model[-1].n_features_in_ if isinstance(model, Pipeline) else model.n_features_in_
    return [sp.csr_array((own.data, own.indices, own.indptr), shape=(own.shape[0], n)) for own in x]


INPUTS = {
    "segments": DENSE[:1],
    "free durations": DENSE[:1],
    "sparse landmarks": SPARSE[:1],
    "scaled pipeline": SPARSE[:1],
    "graphs": [(ROWS[:2], EDGES[:1])],
}


ONE_OR_ALL = pytest.mark.parametrize(
    "factors", [(10**6,), pytest.param(FACTORS, marks=pytest.mark.slow)], ids=["one", "all"]
)


@ONE_OR_ALL
@pytest.mark.parametrize("name", MODELS)
def test_no_integer_of_a_header_takes_memory(name, factors, tmp_path):
    x = INPUTS.get(name, ROWS[:1])
    save(MODELS[name](), tmp_path / "model")
    answer_without_limit(tmp_path / "model", x)
    assert answer(tmp_path / "model", x) == "answered"
    refused = check_forgeries(tmp_path / "model", tmp_path / "forged", lambda path: answer(path, x), factors)
    # The header of a table has the values of its variables, and no dimension.
    assert refused > 0 or name == "table"


CHAINS = sorted(path.stem for path in GOLDEN.glob("*.kcrf"))
OFTEN = ("dicts-hashed", "dicts-many", "edge-rbf", "laplace-partial")


@ONE_OR_ALL
@pytest.mark.parametrize(
    "name", [*OFTEN, *(pytest.param(name, marks=pytest.mark.slow) for name in CHAINS if name not in OFTEN)]
)
def test_no_integer_of_a_chain_takes_memory(name, factors, tmp_path):
    x = golden_models.inputs(name)[:1]
    answer_without_limit(GOLDEN / f"{name}.kcrf", x)
    assert answer(GOLDEN / f"{name}.kcrf", x) == "answered"
    assert check_forgeries(GOLDEN / f"{name}.kcrf", tmp_path / "forged", lambda path: answer(path, x), factors) > 0


@ONE_OR_ALL
@pytest.mark.parametrize("name", ["edge-rbf", "graph-edges", "graph-types", "sets-edges", "table-rbf"])
def test_no_integer_of_a_file_of_an_earlier_version_takes_memory(name, factors, tmp_path):
    path, x = GOLDEN.parent / "v2" / f"{name}.kcrf", golden_models.inputs(name)[:1]
    answer_without_limit(path, x)
    assert answer(path, x) == "answered"
    # The header of a table has the values of its variables, and no dimension.
    assert check_forgeries(path, tmp_path / "forged", lambda path: answer(path, x), factors) > 0 or name == "table-rbf"


def test_shapes_of_tensors_beyond_the_file_are_refused(tmp_path):
    blob = (GOLDEN / "laplace-partial.kcrf").read_bytes()
    n = int.from_bytes(blob[:8], "little")
    head = json.loads(blob[8 : 8 + n])
    for name in set(head) - {"__metadata__"}:
        for axis in range(len(head[name]["shape"])):
            for factor in FACTORS:
                for grown in (1, factor):
                    forged = json.loads(json.dumps(head))
                    start, end = forged[name]["data_offsets"]
                    forged[name]["shape"][axis] *= factor
                    forged[name]["data_offsets"][1] = start + (end - start) * grown
                    text = json.dumps(forged).encode()
                    (tmp_path / "forged").write_bytes(len(text).to_bytes(8, "little") + text + blob[8 + n :])
                    assert "not a model file that this version can read" in answer(tmp_path / "forged", None)


def crfsuite_model(n_labels, weight=1.0):
    """Return a model of CRFsuite in which each label has one feature and one transition."""
    own, weights = np.arange(n_labels), np.full(n_labels, weight)
    state, transitions = StateWeights(own, own, weights), TransitionWeights(own, (own + 1) % n_labels, weights)
    names = [[f"{kind}{i}" for i in range(n_labels)] for kind in ("label", "word")]
    return CRFsuiteModel(*names, state, transitions)


@pytest.mark.parametrize(("n_labels", "weight"), [(3000, 1.0), (1200, 1000.0)])
def test_many_labels_without_transitions_are_refused(n_labels, weight, tmp_path):
    write_model(crfsuite_model(n_labels, weight), tmp_path / "many.crfsuite")
    assert "a file of " in answer(tmp_path / "many.crfsuite", [[["word0"]]])
    write_model(crfsuite_model(3, weight), tmp_path / "few.crfsuite")
    load(tmp_path / "few.crfsuite").save(tmp_path / "few")
    config, arrays = content(tmp_path / "few")
    config["labels"]["classes"] = [f"label{i}" for i in range(n_labels)]
    for label_kernel in config["label_kernels"]:
        label_kernel["L"] = n_labels ** {3: 1, 9: 2}[label_kernel["L"]]
    forge(tmp_path / "many", config, arrays)
    reason = answer(tmp_path / "many", [[["word0"]]])
    assert "the first prediction of this ChainCRF would take" in reason
    assert "damaged, or was not written by this library" in reason
    with pytest.raises(ParameterError, match="would take"):
        ChainCRF("linear", prior=tmp_path / "many").fit([[["word0"]]], [["label0"]])


def test_labels_that_all_depend_on_each_other_are_refused(tmp_path):
    n = 22
    save(MultiLabelCRF("linear", C=1.0, structure=[(0, 1)]).fit(ROWS, (ROWS > 0).astype(int)), tmp_path / "few")
    config, arrays = content(tmp_path / "few")
    pairs = [(u, v) for u in range(n) for v in range(u + 1, n)]
    names = [f"label {v}" for v in range(n)] + [f"edge {u} {v}" for u, v in pairs]
    constants = {term["cliques"].split()[0]: term for term in config["terms"] if term["map"] is None}
    weighted = next(term for term in config["terms"] if term["map"] is not None)
    terms = [{**weighted, "name": name, "cliques": name} for name in names[:n]]
    kinds = {name: constants[name.split()[0]] for name in names}
    terms += [
        {**one, "name": one["name"].replace(one["cliques"], name), "cliques": name} for name, one in kinds.items()
    ]
    config["terms"] = terms
    config["values"] = [config["values"][0]] * n
    # All kernels of labels and of their interactions have the rank 1.
    arrays |= {"edges": np.array(pairs), "theta": np.zeros(sum(term["n"] for term in terms))}
    forge(tmp_path / "many", config, arrays)
    assert "the first prediction of this MultiLabelCRF would take" in answer(tmp_path / "many", ROWS[:1])


def test_a_checkpoint_that_claims_more_is_refused(tmp_path):
    X, y = SPARSE, [[0, 1, 0, 1]] * 4
    ChainCRF("rbf", **CHAIN, checkpoint=tmp_path / "there").fit(X, y)
    config, arrays = content(tmp_path / "there")
    for factor in FACTORS:
        forged = json.loads(json.dumps(config))
        for holder, place, name in list(integers(forged["maps"])):
            holder[place] *= factor if name == "d" else 1
        forge(tmp_path / "there", forged, arrays)
        with limited(50_000_000), pytest.raises(ModelFileError, match="the sizes of a feature map do not match"):
            ChainCRF("rbf", **CHAIN, checkpoint=tmp_path / "there").fit(X, y)


def test_a_thousand_labels_with_few_transitions_answer(tmp_path):
    write_model(crfsuite_model(1000), tmp_path / "many.crfsuite")
    answer_without_limit(tmp_path / "many.crfsuite", [[["word0"], ["word1"]]])
    assert answer(tmp_path / "many.crfsuite", [[["word0"], ["word1"]]]) == "answered"
    load(tmp_path / "many.crfsuite").save(tmp_path / "many")
    assert os.path.getsize(tmp_path / "many") < 200_000
    assert answer(tmp_path / "many", [[["word0"], ["word1"]]]) == "answered"


def test_a_million_hashed_columns_with_few_pairs_answer(tmp_path):
    X, y = [[{"w": "a"}, {"w": "b"}], [{"w": "b"}, {"w": "c"}]], [["x", "y"], ["y", "x"]]
    for name, parameters in {"pairs": {"kernel": "linear", "weights": 1}, "landmarks": {"kernel": "rbf"}}.items():
        ChainCRF(C=1.0, hash_features=2**20, **parameters).fit(X, y).save(tmp_path / name)
        answer_without_limit(tmp_path / name, X)
        assert answer(tmp_path / name, X) == "answered"


def test_a_file_is_as_large_as_the_claims_of_its_model(tmp_path):
    crf = ChainCRF("linear")
    crf.model_ = from_crfsuite(crfsuite_model(2000))
    crf.save(tmp_path / "many")
    assert os.path.getsize(tmp_path / "many") > 10_000_000
    answer_without_limit(tmp_path / "many", [[["word0"], ["word1"]]])
    assert answer(tmp_path / "many", [[["word0"], ["word1"]]]) == "answered"
    config, arrays = content(tmp_path / "many")
    forge(tmp_path / "many", config, {name: array for name, array in arrays.items() if name != "room"})
    assert "would take" in answer(tmp_path / "many", None)


@pytest.mark.parametrize("n_jobs", [2, 100_000, -1, "all"])
def test_a_file_does_not_choose_the_number_of_threads(n_jobs, tmp_path):
    config, arrays = content(GOLDEN / "rbf.kcrf")
    forge(tmp_path / "model", config | {"parameters": {**config["parameters"], "n_jobs": n_jobs}}, arrays)
    crf = load(tmp_path / "model")
    assert crf.n_jobs == 1
    crf.set_params(n_jobs=2).save(tmp_path / "model")
    assert load(tmp_path / "model").n_jobs == 1
