"""Models are written to URLs, and read from them, through fsspec."""

import sys

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from kernelcrf import ChainCRF, ModelFileError, formats, load, save
from kernelcrf.datasets import make_sequences
from kernelcrf.persistence import whole_file
from kernelcrf.preprocessing import PerToken

fsspec = pytest.importorskip("fsspec")


@pytest.fixture(scope="module")
def crf():
    data = make_sequences(20, random_state=0)
    return ChainCRF("linear", C=1.0).fit(data.X, data.y)


def files(folder):
    return sorted(one["name"] for one in fsspec.filesystem("memory").ls(folder))


def test_a_model_is_saved_to_a_url_and_loaded_from_it(crf):
    data = make_sequences(5, random_state=1)
    crf.save("memory://models/one.kcrf")
    assert files("/models") == ["/models/one.kcrf"]
    loaded = load("memory://models/one.kcrf")
    assert all(map((lambda a, b: (a == b).all()), loaded.predict(data.X), crf.predict(data.X)))
    assert ChainCRF(prior="memory://models/one.kcrf").fit(data.X, data.y).certificate_.status == "optimal"
    pipe = make_pipeline(PerToken(StandardScaler()), crf)
    pipe.fit(data.X, data.y)
    save(pipe, "memory://models/pipe.kcrf")
    assert load("memory://models/pipe.kcrf").score(data.X, data.y) == pipe.score(data.X, data.y)


@pytest.mark.parametrize("name", ["one.conll", "one.jsonl.gz", "one.parquet", "one.npz"])
def test_data_are_written_to_a_url_and_read_from_it(name):
    url, vectors = f"memory://data/{name}", name.endswith("npz")
    x = [[1.0, 2.0], [3.0, 4.0]] if vectors else [["The", "DT"], ["dog", "NN"]]
    kind, tokens = ("vectors", None) if vectors else ("text", ["The", "dog"])
    formats.write(url, [formats.Record(kind, np.array(x) if vectors else x, ["B", "I"], tokens, "here")])
    (record,) = formats.read(url)
    assert [list(token) for token in record.x] == x
    assert list(record.labels) == ["B", "I"]
    assert record.place.startswith(url)


@pytest.mark.parametrize("suffix", ["crfsuite", "wapiti"])
def test_models_of_other_programs(suffix):
    words = ChainCRF("linear", C=1.0).fit([[["w=a"], ["w=b"]]] * 3, [["A", "B"]] * 3)
    words.save(f"memory://others/model.{suffix}")
    assert sorted(load(f"memory://others/model.{suffix}").classes_) == ["A", "B"]


def test_a_file_that_is_damaged_or_missing_is_named():
    with fsspec.open("memory://models/damaged", "wb") as file:
        file.write(b"no model")
    with pytest.raises(ModelFileError, match=r"^memory://models/damaged: not a model file"):
        load("memory://models/damaged")
    with pytest.raises(FileNotFoundError):
        load("memory://models/missing")


def test_an_interrupted_upload_leaves_the_file_as_it_was(crf):
    crf.save("memory://whole/model")

    def interrupted():
        with whole_file("memory://whole/model") as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert files("/whole") == ["/whole/model"]
    assert load("memory://whole/model").classes_.tolist() == crf.classes_.tolist()


def test_without_fsspec_it_is_said_what_to_install(crf, monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(ImportError, match="which needs fsspec"):
        crf.save("memory://models/two.kcrf")
