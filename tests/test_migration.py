"""docs/migration.md: the code of other libraries, taken from the page, finds the weights that ours finds."""

import contextlib
import doctest
import io
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import kernelcrf
from kernelcrf import ChainCRF
from kernelcrf.cli.app import app

PAGE = (Path(__file__).parent.parent / "docs" / "migration.md").read_text(encoding="utf-8")


def section(title):
    """The part of the page under a heading."""
    return re.split(r"^## ", PAGE.split(f"\n## {title}\n")[1], flags=re.MULTILINE)[0]


def ours_then_theirs(title):
    """The names that a section's examples define, ours by doctest and theirs by running the plain block."""
    text, names = section(title), {"ChainCRF": ChainCRF}
    test = doctest.DocTestParser().get_doctest(text, names, title, None, 0)
    printed = io.StringIO()
    runner = doctest.DocTestRunner(verbose=False)
    runner.run(test, out=printed.write, clear_globs=False)
    assert runner.summarize(verbose=False).failed == 0, printed.getvalue()
    plain = [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if ">>>" not in block]
    assert len(plain) == 1
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(plain[0], title, "exec"), test.globs)
    return test.globs


def test_sklearn_crfsuite():
    names = ours_then_theirs("sklearn-crfsuite")
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


def test_pytorch_crf():
    pytest.importorskip("torchcrf", reason="pytorch-crf is not installed")
    names = ours_then_theirs("pytorch-crf")
    crf, layer, chain = names["crf"], names["layer"], names["chain"]
    assert crf.certificate_.objective == pytest.approx(names["objective"]().item(), rel=1e-9)
    np.testing.assert_allclose(crf.transitions_, chain.transitions.detach().numpy(), atol=1e-4)
    np.testing.assert_allclose(crf.coef_[:3], layer.weight.detach().numpy().T, atol=1e-4)
    np.testing.assert_allclose(crf.coef_[3], chain.start_transitions.detach().numpy(), atol=1e-4)
    np.testing.assert_allclose(crf.coef_[4], chain.end_transitions.detach().numpy(), atol=1e-4)
    assert [path.tolist() for path in crf.predict(names["chains"])] == names["paths"]
    with_torch = chain(layer(names["inputs"]), names["tags"], mask=names["mask"], reduction="sum")
    assert crf.log_prob(names["chains"], names["y"]).sum() == pytest.approx(with_torch.item(), rel=1e-5)


def test_crfpp_shell(tmp_path, monkeypatch):
    """The commands of the page on files of CRF++'s kind."""
    monkeypatch.chdir(tmp_path)
    text = "the DT D\ndog NN N\nbarks VB V\n\na DT D\ncat NN N\n\n"
    Path("train.txt").write_text(text, encoding="utf-8")
    Path("test.txt").write_text(text, encoding="utf-8")
    Path("template").write_text("# unigrams\nU00:%x[0,0]\nU01:%x[-1,0]/%x[0,0]\n\nB\n", encoding="utf-8")
    commands = re.findall(r"```bash\n(.*?)```", section("CRF++"), re.DOTALL)[0].splitlines()
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
