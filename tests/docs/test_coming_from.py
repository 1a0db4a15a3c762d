"""docs/coming_from: the code of other libraries, taken from the pages, finds what ours finds."""

import contextlib
import doctest
import io
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import kernelcrf
from kernelcrf.cli.app import app

PAGES = Path(__file__).parents[2] / "docs" / "coming_from"


def ours_then_theirs(name):
    """Return the names that a page defines: its examples of kernelcrf run as doctests, then all plain blocks."""
    text = (PAGES / name).read_text(encoding="utf-8")
    test = doctest.DocTestParser().get_doctest(text, {}, name, None, 0)
    printed = io.StringIO()
    runner = doctest.DocTestRunner(verbose=False)
    runner.run(test, out=printed.write, clear_globs=False)
    assert runner.summarize(verbose=False).failed == 0, printed.getvalue()
    plain = [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if ">>>" not in block]
    assert plain
    with contextlib.redirect_stdout(io.StringIO()):
        for block in plain:
            exec(compile(block, name, "exec"), test.globs)
    return test.globs


def test_crfsuite(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = ours_then_theirs("crfsuite.md")
    ours, theirs, X = names["ours"], names["theirs"], names["X"]
    assert ours.certificate_.objective == pytest.approx(theirs.training_log_.last_iteration["loss"], rel=1e-6)
    labels = ours.classes_.tolist()
    steps = [[theirs.transition_features_.get((a, b), 0.0) for b in labels] for a in labels]
    np.testing.assert_allclose(ours.transitions_, steps, atol=2e-4)
    columns = ours.model_.reader.vocabulary
    assert len(columns) == len({name for name, _ in theirs.state_features_})
    for (name, label), weight in theirs.state_features_.items():
        column = columns[name]
        assert ours.coef_[column, labels.index(label)] == pytest.approx(weight, abs=2e-4)
    for mine, other in zip(ours.predict_marginals(X), theirs.predict_marginals(X), strict=True):
        for a, b in zip(mine, other, strict=True):
            assert a == pytest.approx(b, abs=1e-4)
    tagger, crf = names["tagger"], names["loaded"]  # the table of python-crfsuite
    assert names["tagged"] == tagger.tag(X[0]) == crf.predict(X[:1])[0].tolist()
    tagger.set(X[1])
    assert tagger.marginal("D", 0) == pytest.approx(crf.predict_marginals(X[1:2])[0][0]["D"], abs=1e-6)
    assert tagger.probability(["D", "N"]) == pytest.approx(np.exp(crf.log_prob(X[1:2], [["D", "N"]])[0]), abs=1e-6)
    assert tagger.info().transitions["D", "N"] == pytest.approx(crf.transition_table().loc["D", "N"], abs=1e-4)


def test_pytorch_crf():
    pytest.importorskip("torchcrf", reason="pytorch-crf is not installed")
    names = ours_then_theirs("pytorch_crf.md")
    crf, layer, chain, X = names["crf"], names["layer"], names["chain"], names["X"]
    assert crf.certificate_.objective == pytest.approx(names["objective"]().item(), rel=1e-9)
    np.testing.assert_allclose(crf.transitions_, chain.transitions.detach().numpy(), atol=1e-4)
    np.testing.assert_allclose(crf.coef_[:3], layer.weight.detach().numpy().T, atol=1e-4)
    np.testing.assert_allclose(crf.intercept_, layer.bias.detach().numpy(), atol=1e-4)
    np.testing.assert_allclose(crf.start_scores_, chain.start_transitions.detach().numpy(), atol=1e-4)
    np.testing.assert_allclose(crf.end_scores_, chain.end_transitions.detach().numpy(), atol=1e-4)
    assert [path.tolist() for path in crf.predict(X)] == names["paths"]
    with_torch = chain(layer(names["inputs"]), names["tags"], mask=names["mask"], reduction="sum")
    assert crf.log_prob(X, names["y"]).sum() == pytest.approx(with_torch.item(), rel=1e-5)


def test_crfpp_shell(tmp_path, monkeypatch):
    """The commands of the page on files of CRF++'s kind."""
    monkeypatch.chdir(tmp_path)
    text = "the DT D\ndog NN N\nbarks VB V\n\na DT D\ncat NN N\n\n"
    Path("train.txt").write_text(text, encoding="utf-8")
    Path("test.txt").write_text(text, encoding="utf-8")
    Path("template").write_text("# unigrams\nU00:%x[0,0]\nU01:%x[-1,0]/%x[0,0]\n\nB\n", encoding="utf-8")
    page = (PAGES / "crfpp.md").read_text(encoding="utf-8")
    commands = re.findall(r"```bash\n(.*?)```", page, re.DOTALL)[0].splitlines()
    for command in commands:
        words, _, output = command.partition(" > ")
        done = CliRunner().invoke(app, words.split()[1:])
        assert done.exit_code == 0, done.output
        if output:
            Path(output).write_text(done.stdout, encoding="utf-8")
    assert Path("tagged.txt").read_text(encoding="utf-8").split() == [
        word for line in text.splitlines() for word in (*line.split(), *line.split()[2:])
    ]
    model = kernelcrf.load("model.kcrf")
    assert model.C == 1.5
    assert model.kernel_.kernel == "linear"


def test_hmmlearn():
    pytest.importorskip("hmmlearn", reason="hmmlearn is not installed")
    names = ours_then_theirs("hmmlearn.md")
    assert names["true_accuracy"] == 0.862  # the page says so
    assert names["crf"].score(names["X_new"], list(names["y_new"])) > names["true_accuracy"] - 0.01
    ours = np.concatenate(names["crf"].predict_proba(names["X_new"]))
    assert np.abs(ours - names["posteriors"]).mean() == pytest.approx(0.02, abs=5e-3)
    assert names["their_accuracy"] == 0.83


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scikit_multilearn():
    pytest.importorskip("skmultilearn", reason="scikit-multilearn is not installed")
    names = ours_then_theirs("scikit_multilearn.md")
    np.testing.assert_allclose(names["single"].predict_proba(names["X_new"]), names["probabilities"], atol=1e-4)


@pytest.mark.filterwarnings("ignore")
def test_mapie():
    pytest.importorskip("mapie", reason="MAPIE is not installed")
    names = ours_then_theirs("mapie.md")
    ours, theirs = names["our_sets"], names["their_sets"]
    np.testing.assert_array_equal(ours, theirs[:, :, 0])
    assert ours.sum(axis=1).max() > 1  # sets of one label would be equal anyway
    for level in (0.5, 0.8, 0.9):
        model, X, y = names["model"], names["X_held_out"], names["y_held_out"]
        mine = names["ConformalLabels"](model, confidence_level=level).conformalize(X, y)
        other = names["SplitConformalClassifier"](model, confidence_level=level).conformalize(X, y)
        np.testing.assert_array_equal(mine.predict_set(names["X_new"]), other.predict_set(names["X_new"])[1][:, :, 0])
