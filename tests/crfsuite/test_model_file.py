"""Model files of CRFsuite, beside python-crfsuite: the same weights are read, and what is written is opened there."""

import random
import re
import struct
import tracemalloc

import numpy as np
import pycrfsuite
import pytest

from kernelcrf import ModelFileError
from kernelcrf.crfsuite import CRFsuiteModel, StateWeights, TransitionWeights, read_model, write_model
from kernelcrf.persistence.crfsuite.model_file import CHUNK, FEATURE, HEADER, model_bytes
from kernelcrf.persistence.crfsuite.names import FIRST_RECORD

LONGEST_NAME = 40
SETTINGS = {
    "plain": {},
    "l1": {"c1": 0.5, "c2": 0.0},
    "l2": {"c1": 0.0, "c2": 0.1},
    "elastic": {"c1": 0.05, "c2": 0.05},
    "all states": {"feature.possible_states": True},
    "all transitions": {"feature.possible_transitions": True},
    "all": {"feature.possible_states": True, "feature.possible_transitions": True},
    "frequent": {"feature.minfreq": 3},
    "nothing left": {"c1": 1e4},
}


def sequences(seed, n_labels=4, n=30, longest=8):
    """Random sequences; the names of attributes have all lengths, and some of them are not ASCII."""
    rng = random.Random(seed)
    names = ["", *("x" * k + str(k) for k in range(LONGEST_NAME)), "größe", "คำ=ไทย", "😀" * 5, "a:b\\c", "tab\there"]
    labels = [f"B-{'é' * k}" for k in range(n_labels)]
    X = [[rng.sample(names, 3) for _ in range(rng.randint(1, longest))] for _ in range(n)]
    return X, [[rng.choice(labels) for _ in x] for x in X]


def trained(path, X, y, algorithm="lbfgs", **settings):
    trainer = pycrfsuite.Trainer(algorithm, verbose=False)
    for xs, ys in zip(X, y, strict=True):
        trainer.append(xs, ys)
    trainer.set_params({"max_iterations": 20, **settings})
    trainer.train(str(path))
    return path


def tagger_of(path):
    tagger = pycrfsuite.Tagger()
    tagger.open(str(path))
    return tagger


def dump(path):
    tagger = tagger_of(path)
    tagger.dump(str(path) + ".dump")
    return path.with_name(path.name + ".dump").read_bytes()


def section(text, title):
    body = re.search(rb"^%b = \{\n(.*?)^\}\n" % title.encode(), text, re.MULTILINE | re.DOTALL)[1]
    return [line.decode("utf-8", "surrogateescape") for line in body.split(b"\n")[:-1]]


def assert_same(model, other):
    assert (model.labels, model.attributes) == (other.labels, other.attributes)
    for one, two in zip((*model.state, *model.transitions), (*other.state, *other.transitions), strict=True):
        np.testing.assert_array_equal(one, two)


def lines_of(model):
    """The lines that CRFsuite's dump has for this model."""
    transitions = zip(*(array.tolist() for array in model.transitions), strict=True)
    state = zip(*(array.tolist() for array in model.state), strict=True)
    return {
        "LABELS": [f"  {i:5d}: {name}" for i, name in enumerate(model.labels)],
        "ATTRIBUTES": [f"  {i:5d}: {name}" for i, name in enumerate(model.attributes)],
        "TRANSITIONS": [f"  (1) {model.labels[i]} --> {model.labels[j]}: {weight:f}" for i, j, weight in transitions],
        "STATE_FEATURES": [f"  (0) {model.attributes[i]} --> {model.labels[j]}: {weight:f}" for i, j, weight in state],
    }


def assert_round_trip(path, X):
    model = read_model(path)
    text = dump(path)
    for title, lines in lines_of(model).items():
        assert section(text, title) == lines
    copy = path.with_name("copy.crfsuite")
    write_model(model, copy)
    assert copy.read_bytes() == path.read_bytes()
    assert dump(copy) == text
    ours, theirs = tagger_of(copy), tagger_of(path)
    assert ours.labels() == theirs.labels()
    for x in X:
        assert ours.tag(x) == theirs.tag(x)
        for label in theirs.labels():
            assert [ours.marginal(label, t) for t in range(len(x))] == [
                theirs.marginal(label, t) for t in range(len(x))
            ]
    return model


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_files_of_crfsuite_are_read_and_written_to_the_byte(settings, tmp_path):
    X, y = sequences(0)
    model = assert_round_trip(trained(tmp_path / "a.crfsuite", X, y, **settings), X)
    assert model.state.weights.dtype == model.transitions.weights.dtype == np.float64
    assert (len(model.attributes) == 0) == ("c1" in settings and settings["c1"] > 1)


@pytest.mark.parametrize("algorithm", ["l2sgd", "ap", "pa", "arow"])
def test_other_trainers_write_the_same_format(algorithm, tmp_path):
    X, y = sequences(1)
    assert_round_trip(trained(tmp_path / "a.crfsuite", X, y, algorithm), X)


@pytest.mark.parametrize(
    ("kind", "n_labels", "longest", "n_transitions"), [("one label", 1, 5, 1), ("one token", 3, 1, 0)]
)
def test_models_of_one_label_and_without_transitions(kind, n_labels, longest, n_transitions, tmp_path):
    X, y = sequences(2, n_labels=n_labels, longest=longest)
    model = assert_round_trip(trained(tmp_path / "a.crfsuite", X, y, c2=0.5), X)
    assert len(model.transitions.weights) <= n_transitions
    assert len(model.labels) == n_labels


def test_names_that_are_not_utf_8_are_kept(tmp_path):
    names = ["latin \udce9", "\udcff\udcfe", "é"]
    labels = ["\udce4", "ok"]
    state = StateWeights(np.array([0, 1, 2]), np.array([0, 1, 1]), np.array([1.0, -2.0, 3.0]))
    model = CRFsuiteModel(labels, names, state, TransitionWeights(*np.empty((2, 0), int), np.empty(0)))
    write_model(model, tmp_path / "a.crfsuite")
    assert_same(read_model(tmp_path / "a.crfsuite"), model)
    assert b"latin \xe9\0" in (tmp_path / "a.crfsuite").read_bytes()
    for title, lines in lines_of(model).items():
        assert section(dump(tmp_path / "a.crfsuite"), title) == lines


def test_features_in_any_order_are_written_in_the_order_of_crfsuite(tmp_path):
    X, y = sequences(3)
    path = trained(tmp_path / "a.crfsuite", X, y)
    model = read_model(path)
    rng = np.random.default_rng(0)
    states, transitions = (rng.permutation(len(own.weights)) for own in (model.state, model.transitions))
    mixed = CRFsuiteModel(
        model.labels,
        model.attributes,
        StateWeights(*(array[states] for array in model.state)),
        TransitionWeights(
            *(array[transitions].astype(np.int32 if i < 2 else float) for i, array in enumerate(model.transitions))
        ),
    )
    assert model_bytes(mixed) == path.read_bytes()


def test_attributes_without_weights_and_weights_of_0_are_kept(tmp_path):
    state = StateWeights(np.array([1]), np.array([0]), np.array([0.0]))
    model = CRFsuiteModel(["a", "b"], ["x", "y", "z"], state, TransitionWeights([1], [0], [-0.0]))
    write_model(model, tmp_path / "a.crfsuite")
    assert_same(read_model(tmp_path / "a.crfsuite"), model)
    tagger = tagger_of(tmp_path / "a.crfsuite")
    tagger.set([["x"], ["y", "unknown"], ["z"]])
    assert [tagger.marginal("a", t) for t in range(3)] == pytest.approx([0.5] * 3)


def test_models_with_many_attributes_and_labels(tmp_path):
    rng = np.random.default_rng(0)
    n_labels, n_attributes, n = 300, 20_000, 30_000
    places = np.sort(rng.choice(n_labels * n_attributes, n, replace=False))
    pairs = np.sort(rng.choice(n_labels**2, 5_000, replace=False))
    model = CRFsuiteModel(
        [f"label {i}" for i in range(n_labels)],
        [f"{i}," * (1 + i % 9) for i in range(n_attributes)],
        StateWeights(places // n_labels, places % n_labels, rng.standard_normal(n)),
        TransitionWeights(pairs // n_labels, pairs % n_labels, rng.standard_normal(5_000)),
    )
    path = tmp_path / "a.crfsuite"
    write_model(model, path)
    assert_same(read_model(path), model)
    for title, lines in lines_of(model).items():
        assert section(dump(path), title) == lines
    tagger = tagger_of(path)
    scores = np.zeros((8, n_labels))
    tokens = rng.integers(n_attributes, size=(8, 20))
    for t, token in enumerate(tokens):
        chosen = np.isin(model.state.attributes, token)
        np.add.at(scores[t], model.state.labels[chosen], model.state.weights[chosen])
    tagger.set([[model.attributes[i] for i in token] for token in tokens])
    path_found = np.array([model.labels.index(label) for label in tagger.tag()])
    matrix = np.zeros((n_labels, n_labels))
    matrix[model.transitions.sources, model.transitions.targets] = model.transitions.weights
    best = scores[0]
    for row in scores[1:]:
        best = (best[:, None] + matrix).max(axis=0) + row
    found = scores[np.arange(8), path_found].sum() + matrix[path_found[:-1], path_found[1:]].sum()
    assert found == pytest.approx(best.max())


NONE = TransitionWeights(*np.empty((2, 0), int), np.empty(0))
ONE = StateWeights(np.array([0]), np.array([0]), np.array([1.0]))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"labels": ["a\0b"]}, r"labels has the name 'a\\x00b': expected names without NUL"),
        ({"attributes": ["x", "\0"]}, r"attributes has the name '\\x00': expected names without NUL"),
        ({"labels": ["a", "b", "a"]}, "labels has the name 'a' more than once: expected different names"),
        ({"attributes": ["é", "\udcc3\udca9"]}, "attributes has the name 'é' more than once"),
        ({"attributes": ["\ud800"]}, "attributes has a name that UTF-8 cannot store .*: expected plain text"),
        ({"labels": [1]}, "labels has a name that UTF-8 cannot store"),
        ({"labels": []}, "the model has no labels: .* needs at least one"),
        ({"state": ONE._replace(weights=np.array([np.nan]))}, "state.weights has values that are not finite"),
        ({"transitions": TransitionWeights([0], [0], [np.inf])}, "transitions.weights has values that are not finite"),
        ({"state": ONE._replace(weights=np.array(["1"]))}, "state.weights has values that are not finite"),
        ({"state": ONE._replace(attributes=np.array([1]))}, "state.attributes .*: expected integers >= 0 and below 1"),
        ({"state": ONE._replace(labels=np.array([-1]))}, "state.labels has values that are not ids of names"),
        ({"transitions": TransitionWeights([0.0], [0], [1])}, "transitions.sources has values that are not ids"),
        (
            {"transitions": TransitionWeights([0], [0, 0], [1])},
            r"shapes \(1,\), \(2,\), \(1,\): expected one-dimensional arrays",
        ),
        ({"state": StateWeights([0, 0], [0, 0], [1, 2])}, "state has two weights for the same pair of ids"),
    ],
)
def test_models_that_crfsuite_could_not_read_are_refused(fields, message, tmp_path):
    path = tmp_path / "a.crfsuite"
    path.write_bytes(b"before")
    model = CRFsuiteModel(**{"labels": ["a"], "attributes": ["x"], "state": ONE, "transitions": NONE, **fields})
    with pytest.raises(ValueError, match=message):
        write_model(model, path)
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def changed(data, place, number):
    return data[:place] + struct.pack("<I", number) + data[place + 4 :]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    X, y = sequences(4, n_labels=3, n=10)
    return trained(tmp_path_factory.mktemp("small") / "a.crfsuite", X, y, c1=0.1).read_bytes()


def parts(data):
    """The positions of the features, the labels, the attributes and the references."""
    return HEADER.unpack(data[: HEADER.size])[7:]


def mutant(data, rng):
    """A damaged file, and the range of bytes that may differ if its length is unchanged."""
    kind = rng.choice(["flip", "flip", "flip", "number", "cut", "insert", "delete", "swap", "zero"])
    place = rng.choice([rng.randrange(len(data)), rng.randrange(120), rng.choice(parts(data)) + rng.randrange(40)])
    place = min(place, len(data) - 1)
    if kind == "flip":
        return data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1 :], (place, place + 1)
    if kind == "number":
        place = min(place, len(data) - 4)
        number = rng.choice([0, 1, 2**31, 2**32 - 1, rng.randrange(2**32), rng.randrange(len(data)), len(data)])
        return changed(data, place, number), (place, place + 4)
    if kind == "cut":
        return data[:place], None
    if kind == "insert":
        return data[:place] + rng.randbytes(rng.randint(1, 8)) + data[place:], None
    if kind == "delete":
        return data[:place] + data[place + rng.randint(1, 8) :], None
    end = min(len(data), place + rng.randint(2, 64))
    middle = data[place:end][::-1] if kind == "swap" else bytes(end - place)
    return data[:place] + middle + data[end:], (place, end)


def test_damaged_files_are_refused_or_differ_in_their_weights_only(small):
    """Names are protected by their hashes; the label and the weight of a feature are not protected by anything."""
    rng = random.Random(0)
    right = read_model(small)
    first = parts(small)[0] + CHUNK.size
    features = range(first, first + FEATURE.itemsize * (len(right.state.weights) + len(right.transitions.weights)))
    refused = []
    tracemalloc.start()
    for _ in range(400):
        data, touched = mutant(small, rng)
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        try:
            found = read_model(data)
        except ModelFileError as error:
            found, refused = None, [*refused, str(error)]
        assert tracemalloc.get_traced_memory()[1] - before < 1 << 20
        if found is None:
            continue
        assert touched is not None
        assert (found.labels, found.attributes) == (right.labels, right.attributes)
        if touched[1] <= features.start or touched[0] >= features.stop:
            assert_same(found, right)
        else:
            assert_same(read_model(model_bytes(found)), found)
    tracemalloc.stop()
    assert 200 < len(refused) < 390
    pattern = (
        r"source: not a model file of CRFsuite, or a damaged one \(.*\)\. Copy the file again, or train the model again"
    )
    assert all(re.fullmatch(pattern, message) for message in refused)


def test_one_changed_byte_of_a_name_or_an_id_is_noticed(small):
    _, labels, attributes, by_label, by_attribute = parts(small)
    right = read_model(small)
    for start, names in ((labels, right.labels), (attributes, right.attributes)):
        first = start + FIRST_RECORD
        for place in range(first, first + sum(9 + len(name.encode()) for name in names)):
            with pytest.raises(ModelFileError):
                read_model(small[:place] + bytes([small[place] ^ 1]) + small[place + 1 :])
    for place in (
        by_label + CHUNK.size,
        by_attribute + CHUNK.size,
        by_attribute + CHUNK.size + 4 * len(right.attributes),
    ):
        with pytest.raises(ModelFileError, match="references"):
            read_model(changed(small, place, 3))


@pytest.mark.parametrize(
    ("place", "number", "message"),
    [
        (0, 0, r"begins with b'\\x00\\x00\\x00\\x00', b'FOMC' and version 100: expected b'lCRF'"),
        (8, 0, "expected b'lCRF', b'FOMC' and 100"),
        (12, 101, "version 101: expected"),
        (4, 7, r"the header says 7 bytes .*: expected the same size"),
        (20, 0, "and 0 labels, .* at least one label"),
        (20, 2**32 - 1, "the list of labels .*: expected b'CQDB', 0x62445371 and 4,294,967,295 names"),
        (24, 2**32 - 1, "the list of attributes .* and 4,294,967,295 names"),
        (28, 2**32 - 1, "the features should be bytes 4,294,967,295 to "),
        (32, 0, "the list of labels begins with b'lCRF'"),
        (40, 0, "the references to features begin with b'lCRF': expected b'LFRF'"),
        (44, 2**32 - 4, "the references to features should be bytes 4,294,967,292 to"),
        (HEADER.size + 8, 2**32 - 1, "the features should be bytes 60 to 85,899,345,960"),
        (HEADER.size + CHUNK.size, 2, "a feature is of an unknown kind"),
        (HEADER.size + CHUNK.size + 4, 10**6, "its attribute or first label is not in the file"),
        (HEADER.size + CHUNK.size + 8, 10**6, "its label is not in the file"),
        (HEADER.size + CHUNK.size + 16, 0x7FF00000, "a weight that is not finite"),
    ],
)
def test_errors_say_what_is_wrong(small, place, number, message):
    with pytest.raises(ModelFileError, match=message):
        read_model(changed(small, place, number))


def test_a_file_that_repeats_a_long_name_takes_little_memory():
    """All records overlap: 20,000 names of 200,000 bytes would take 4 GB."""
    data = model_bytes(CRFsuiteModel(["a"], ["x" * 200_000, *map(str, range(20_000))], ONE, NONE))
    attributes = parts(data)[2]
    n, positions = struct.unpack("<2I", data[attributes + 16 : attributes + 24])
    hostile = data
    for i in range(n):
        hostile = hostile if i % 500 else changed(hostile, attributes + positions + 4 * i, FIRST_RECORD)
    tracemalloc.start()
    with pytest.raises(ModelFileError, match="the list of attributes has ids other than 0 to"):
        read_model(hostile)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * len(data)


def test_memory_is_a_small_multiple_of_the_size_of_the_file():
    data = model_bytes(CRFsuiteModel(["a"], [f"{i:x}" for i in range(50_000)], ONE, NONE))
    tracemalloc.start()
    read_model(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12 * len(data)


def test_names_that_occur_twice_or_contain_nul_are_refused():
    data = model_bytes(CRFsuiteModel(["a"], ["xy", "xz"], StateWeights([0], [0], [1.0]), NONE))
    with pytest.raises(ModelFileError, match="two attributes have the same name"):
        read_model(data.replace(b"xz\0", b"xy\0"))
    with pytest.raises(ModelFileError, match="a NUL is missing or misplaced in the attributes"):
        read_model(data.replace(b"xz\0", b"\0z\0"))
    with pytest.raises(ModelFileError, match="a NUL is missing or misplaced in the attributes"):
        read_model(data.replace(b"xz\0", b"xzz"))


def test_a_hash_table_that_leads_nowhere_is_refused():
    """CRFsuite stops at an empty slot, so a name in the wrong slot would be unknown to it."""
    data = model_bytes(CRFsuiteModel(["a"], ["x"], ONE, NONE))
    attributes = parts(data)[2]
    slots = attributes + FIRST_RECORD + 8 + 2
    moved = data[:slots] + data[slots + 8 : slots + 16] + data[slots : slots + 8] + data[slots + 16 :]
    assert len(read_model(data).attributes) == 1
    with pytest.raises(ModelFileError, match="the hash tables of attributes do not lead to their names"):
        read_model(moved)


def test_paths_that_are_no_model_files_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="missing"):
        read_model(tmp_path / "missing")
    with pytest.raises(ModelFileError, match="is a folder or a device"):
        read_model(tmp_path)
    (tmp_path / "notes.txt").write_text("no model")
    with pytest.raises(ModelFileError, match=r"notes\.txt: not a model.*begins with b'no m'.*begins with b'lCRF'"):
        read_model(tmp_path / "notes.txt")
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(ModelFileError, match="begins with b''"):
        read_model(str(tmp_path / "empty"))
    with pytest.raises(ModelFileError, match="the header should be bytes 0 to 48"):
        read_model(b"lCRF")
