import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

import kernelcrf
from chain_fits import of_tokens_and_steps
from kernelcrf import ChainCRF
from kernelcrf.datasets import make_sequences
from kernelcrf.fitting.checkpoints import Checkpoint
from kernelcrf.persistence import ModelFileError

SETTINGS = {"n_components": 20, "C": 3.0, "random_state": 0, "tol": 1e-9}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(1)
    X = [rng.normal(size=(rng.integers(1, 9), 3)) for _ in range(40)]
    return X, [np.where(np.sin(2 * x[:, 0]) > 0, "up", "down").tolist() for x in X]


@pytest.fixture(scope="module")
def whole(data):
    return ChainCRF(**SETTINGS).fit(*data)


WITH_STEPS = {"inputs": of_tokens_and_steps("rbf", "linear", n_components=20), "n_components": 500}


@pytest.mark.parametrize("settings", [{}, {"kernel": "linear"}, WITH_STEPS, {"solver": "newton-cg"}])
def test_a_fit_that_was_cut_short_goes_on(data, settings, tmp_path):
    settings = {**SETTINGS, **settings, "checkpoint": Checkpoint(tmp_path / "run", every=3)}
    whole = ChainCRF(**{**settings, "checkpoint": None}).fit(*data)
    with pytest.warns(match="max_iter"):
        short = ChainCRF(**settings, max_iter=4).fit(*data)
    assert short.certificate_.objective > whole.certificate_.objective
    went_on = ChainCRF(**settings).fit(*data)
    assert went_on.certificate_.objective == pytest.approx(whole.certificate_.objective, rel=1e-9)
    np.testing.assert_allclose(went_on.objective_curve_[:4], short.objective_curve_[:4])
    assert (np.diff(went_on.gap_curve_[:, 1:], axis=0) >= 0).all()
    again = ChainCRF(**settings).fit(*data)
    assert len(again.objective_curve_) <= len(went_on.objective_curve_) + 1
    if settings.get("kernel") != "linear":
        own, expected = (one.model_.token_inputs[0].landmarks for one in (went_on, whole))
        np.testing.assert_array_equal(own, expected)


def test_the_file_is_written_every_so_often_and_is_whole(data, tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(Checkpoint, "write", lambda self, *args: written.append(len(args[-1].history) - 1))
    fitted = ChainCRF(**SETTINGS, checkpoint=Checkpoint(tmp_path / "run", every=7)).fit(*data)
    assert written == [*range(0, fitted.n_iter_ + 1, 7), fitted.n_iter_]


@pytest.mark.parametrize(
    "change", [{"C": 4.0}, {"gamma": 0.7}, {"n_components": 21}, {"kernel": "poly"}, {"label_kernel": "centred"}]
)
def test_another_problem_is_refused(data, change, tmp_path):
    path = tmp_path / "run"
    ChainCRF(**SETTINGS, checkpoint=path).fit(*data)
    with pytest.raises(ValueError, match=r"was written by a fit that differs in .* pass another path"):
        ChainCRF(**{**SETTINGS, **change}, checkpoint=path).fit(*data)


def test_what_is_no_checkpoint_is_refused(data, whole, tmp_path):
    whole.save(tmp_path / "model")
    with pytest.raises(ModelFileError, match="is a model file: expected a checkpoint of a fit"):
        ChainCRF(**SETTINGS, checkpoint=tmp_path / "model").fit(*data)
    ChainCRF(**SETTINGS, checkpoint=tmp_path / "run").fit(*data)
    with pytest.raises(ModelFileError):
        kernelcrf.load(tmp_path / "run")
    with pytest.raises(TypeError, match="checkpoint=3"):
        ChainCRF(**SETTINGS, checkpoint=3).fit(*data)
    with pytest.raises(ValueError, match="every=0"):
        Checkpoint("run", every=0)
    with pytest.raises(ValueError, match=r"checkpoint=.* cannot be combined with n_components"):
        ChainCRF(n_components="auto", checkpoint=tmp_path / "other", C=1.0).fit(*data)


def test_a_url_goes_through_fsspec(data, whole):
    pytest.importorskip("fsspec")
    import fsspec

    path = "memory://runs/one"
    with pytest.warns(match="max_iter"):
        ChainCRF(**SETTINGS, checkpoint=path, max_iter=4).fit(*data)
    went_on = ChainCRF(**SETTINGS, checkpoint=path).fit(*data)
    assert went_on.certificate_.objective == pytest.approx(whole.certificate_.objective, rel=1e-9)
    assert [file["name"] for file in fsspec.filesystem("memory").ls("/runs")] == ["/runs/one"]


@pytest.mark.skipif(sys.platform == "win32", reason="a process is not killed by a signal there")
def test_a_process_that_is_killed_leaves_a_run_to_go_on_with(tmp_path, monkeypatch):
    script = textwrap.dedent(
        """
        import sys, time
        from kernelcrf import ChainCRF
        from kernelcrf.fitting.checkpoints import Checkpoint
        from kernelcrf.datasets import make_sequences

        data = make_sequences(60, random_state=0)
        write = Checkpoint.write
        def slow(self, *args):
            write(self, *args)
            print(len(args[-1].history), flush=True)
            time.sleep(0.2)
        Checkpoint.write = slow
        options = {"n_components": 20, "C": 1.0, "tol": 1e-10, "random_state": 0}
        ChainCRF(**options, checkpoint=Checkpoint(sys.argv[1], every=1)).fit(data.X, data.y)
        """
    )
    data = make_sequences(60, random_state=0)
    settings = {"n_components": 20, "C": 1.0, "tol": 1e-10, "random_state": 0}
    whole = ChainCRF(**settings).fit(data.X, data.y).certificate_.objective
    killed = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "run")], stdout=subprocess.PIPE, text=True, env=os.environ
    )
    for _ in range(4):
        killed.stdout.readline()
    time.sleep(0.05)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    lengths, write = [], Checkpoint.write

    def watched(self, *args):
        lengths.append(len(args[-1].history))
        write(self, *args)

    monkeypatch.setattr(Checkpoint, "write", watched)
    crf = ChainCRF(**settings, checkpoint=Checkpoint(tmp_path / "run", every=1)).fit(data.X, data.y)
    assert lengths[0] >= 4
    assert crf.certificate_.objective == pytest.approx(whole, rel=1e-9)
