"""docs/beside: each recipe runs from its page, with the real package if that is installed."""

import http.client
import importlib
import json
import re
import socket
import sys
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from kernelcrf import ChainCRF
from kernelcrf.datasets import make_sequences

PAGES = Path(__file__).parents[2] / "docs" / "beside"


def blocks(name):
    """Return the Python code of a page, one text per block."""
    return re.findall(r"```python\n(.*?)```", (PAGES / name).read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_spacy(tmp_path, monkeypatch, capsys):
    spacy = pytest.importorskip("spacy", reason="spaCy is not installed")
    monkeypatch.chdir(tmp_path)
    component, usage = blocks("spacy.md")
    people, places = ("Maria", "John", "Ada", "Alan"), ("Paris", "Rome", "Oslo", "New York")
    blank, documents = spacy.blank("en"), []
    for i, name in enumerate(people * 4):
        start, end = places[i // 4], places[(i + 1) % 4]
        doc = blank(f"{name} flew from {start} to {end} .")
        starts = [0, len(f"{name} flew from "), len(f"{name} flew from {start} to ")]
        texts = zip(starts, (name, start, end), ("PERSON", "PLACE", "PLACE"), strict=True)
        doc.ents = [doc.char_span(at, at + len(text), label=label) for at, text, label in texts]
        documents.append(doc)
    names = {}
    exec(compile(component, "spacy.md", "exec"), names)
    assert names["tags"](documents[2]) == ["B-PERSON", "O", "O", "B-PLACE", "O", "B-PLACE", "I-PLACE", "O"]
    exec(compile(usage, "spacy.md", "exec"), names | {"documents": documents})
    assert capsys.readouterr().out.splitlines()[0].startswith("Maria PERSON ")
    loaded = spacy.load(tmp_path / "pipeline")
    doc, empty = loaded.pipe(["Ada flew from Oslo to New York .", ""])
    assert [(entity.text, entity.label_) for entity in doc.ents] == [
        ("Ada", "PERSON"),
        ("Oslo", "PLACE"),
        ("New York", "PLACE"),
    ]
    spans = loaded.get_pipe("crf_entities").crf.distribution([names["features"](doc)]).spans()[0]
    assert [entity._.probability for entity in doc.ents] == [span.probability for span in spans]
    assert not empty.ents
    least = spans[0].probability + 1e-9
    strict = spacy.blank("en")
    strict.add_pipe("crf_entities", config={"path": "pipeline/crf_entities/model.kcrf", "least": least})
    kept = [span.label for span in spans if span.probability >= least]
    assert [entity.label_ for entity in strict("Ada flew from Oslo to New York .").ents] == kept
    assert len(kept) < len(spans)


def test_transformers(capsys):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocabulary = ["[PAD]", "[UNK]", "the", "dog", "cat", "bark", "##s", "sleep", "##ing"]
    wordpiece = Tokenizer(models.WordPiece({word: i for i, word in enumerate(vocabulary)}, unk_token="[UNK]"))
    wordpiece.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=wordpiece, pad_token="[PAD]", unk_token="[UNK]", model_max_length=16
    )
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = transformers.BertConfig(vocab_size=len(vocabulary), max_position_embeddings=16, **sizes)
    model = transformers.BertModel(config).eval()
    function, fit = blocks("transformers.md")
    sentences = [["the", "dog", "barks"], ["sleeping", "cats"], ["the", "cat", "\u200b", "sleeps"]] * 3
    labels = [["D", "N", "V"], ["V", "N"], ["D", "N", "O", "V"]] * 3
    names = {"sentences": sentences, "labels": labels, "tokenizer": tokenizer, "model": model}
    names["new_sentences"] = sentences[:1]
    exec(compile(function, "transformers.md", "exec"), names)
    vectors = names["word_vectors"](sentences, tokenizer, model)
    assert [own.shape for own in vectors[:3]] == [(3, 8), (2, 8), (4, 8)]
    with torch.inference_mode():
        ids = torch.tensor([[vocabulary.index(piece) for piece in ("sleep", "##ing", "cat", "##s")]])
        pieces = model(ids).last_hidden_state[0].double().numpy()
    np.testing.assert_allclose(vectors[1], [pieces[:2].mean(axis=0), pieces[2:].mean(axis=0)], atol=1e-6)
    alone = [names["word_vectors"]([words], tokenizer, model)[0] for words in sentences]
    np.testing.assert_allclose(np.concatenate(vectors), np.concatenate(alone), atol=1e-6)  # padding changes nothing
    with pytest.raises(ValueError, match="more pieces than the model can read"):
        names["word_vectors"]([["the"] * 17], tokenizer, model)
    exec(compile(fit, "transformers.md", "exec"), names)
    assert "'D', 'N', 'V'" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore")
def test_mlflow(tmp_path, monkeypatch, capsys):
    mlflow = pytest.importorskip("mlflow", reason="MLflow is not installed")
    monkeypatch.chdir(tmp_path)
    labeller, log, use = blocks("mlflow.md")
    Path("labeller.py").write_text(labeller, encoding="utf-8")
    data = make_sequences(20, random_state=0)
    crf = ChainCRF(C=1.0, n_components=20, random_state=0).fit(data.X, data.y)
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path.as_posix()}/runs.db")
    names = {"crf": crf, "X_new": data.X}
    exec(compile(log, "mlflow.md", "exec"), names)
    exec(compile(use, "mlflow.md", "exec"), names)
    expected = [labels.tolist() for labels in crf.predict(data.X)]
    assert names["labeller"].predict(data.X) == expected
    assert str(expected[0]) in capsys.readouterr().out
    run = mlflow.get_run(names["logged"].run_id)
    assert run.data.metrics["relative_gap"] == pytest.approx(crf.certificate_.relative_gap)


@pytest.mark.filterwarnings("ignore")
def test_sktime(capsys):
    pytest.importorskip("sktime", reason="sktime is not installed")
    one_series, functions, usage = blocks("sktime.md")
    names = {}
    exec(compile(one_series, "sktime.md", "exec"), names)
    assert f"```text\n{capsys.readouterr().out}```" in (PAGES / "sktime.md").read_text(encoding="utf-8")
    assert names["true"]["labels"].tolist() == ["mill", "heat", "mill"]
    assert names["true"]["ilocs"][1].right == 52  # one minute later than the predicted change
    data = make_sequences(20, random_state=0)
    lengths = [len(x) for x in data.X]
    instances = np.repeat(np.arange(20), lengths)
    times = np.concatenate([np.arange(length) for length in lengths])
    index = pd.MultiIndex.from_arrays([instances, times], names=["instance", "time"])
    panel = pd.DataFrame(np.concatenate(data.X), index=index, columns=["a", "b"])
    names |= {"panel": panel, "y": pd.Series(np.concatenate(data.y), index=index)}
    exec(compile(functions, "sktime.md", "exec"), names)
    frames, labels = names["to_sequences"](panel, names["y"])
    for frame, own, x, y in zip(frames, labels, data.X, data.y, strict=True):
        np.testing.assert_array_equal(frame.to_numpy(), x)
        np.testing.assert_array_equal(own, y)
    exec(compile(usage, "sktime.md", "exec"), names)
    crf, X = names["crf"], names["X"]
    predicted = crf.predict(X)
    series = names["to_series"](predicted, index)
    np.testing.assert_array_equal(series.loc[3], predicted[3])
    for x, labels in zip(X, predicted, strict=True):
        np.testing.assert_array_equal(names["detector"].transform(x)["labels"], labels)


@pytest.mark.filterwarnings("ignore")
def test_fastapi(tmp_path, monkeypatch, capsys):
    pytest.importorskip("fastapi", reason="FastAPI is not installed")
    uvicorn = pytest.importorskip("uvicorn", reason="uvicorn is not installed")
    monkeypatch.chdir(tmp_path)
    server, load = blocks("fastapi.md")
    data = make_sequences(100, random_state=0)
    activities = [np.array(["rest", "walk", "run"])[labels] for labels in data.y]
    crf = ChainCRF(C=10.0, n_components=50, random_state=0).fit(data.X, activities)
    crf.save("model.kcrf")
    Path("server.py").write_text(server, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    app = importlib.import_module("server").app
    monkeypatch.delitem(sys.modules, "server")
    listening = socket.create_server(("127.0.0.1", 0))
    running = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        names = {}
        exec(compile(load, "fastapi.md", "exec"), names)
        names["PORT"] = listening.getsockname()[1]
        sequences = [x.tolist() for x in data.X]
        for size in (1, 50):
            names["measure"](sequences, size)
        assert capsys.readouterr().out.count("no request failed") == 2
        connection = http.client.HTTPConnection("127.0.0.1", names["PORT"])

        def ask(sequences):
            body = json.dumps({"sequences": sequences})
            connection.request("POST", "/spans", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, json.loads(response.read())

        status, answer = ask(sequences)
        wrong, message = ask([[[1.0, 2.0, 3.0]]])
        connection.close()
    finally:
        running.should_exit = True
        thread.join(30)
    assert status == 200
    for found, expected in zip(answer, crf.distribution(data.X).spans(), strict=True):
        assert [(s["start"], s["end"], s["label"]) for s in found] == [(s.start, s.end, s.label) for s in expected]
        assert [s["probability"] for s in found] == pytest.approx([s.probability for s in expected])
    assert wrong == 422
    assert "3" in message["detail"]
