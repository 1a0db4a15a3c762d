"""A file appears whole or not at all, whatever happens on the way."""

import errno
import fcntl
import os
import resource
import stat
import sys

import pytest

import kernelcrf
from kernelcrf import ChainCRF
from kernelcrf.datasets import make_sequences
from kernelcrf.formats.streams import line_batches
from kernelcrf.persistence import ModelFileError, begins_like_model, check_target, read, whole_file
from kernelcrf.persistence.crfsuite.model_file import begins_like_crfsuite
from trials.interruption import saves_interrupted

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="/proc and /sys are those of Linux")


def test_devices_and_folders_are_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    for name in ("pipe", "folder", "link"):
        with (
            pytest.raises(OSError, match="this is a folder, a device or a pipe; pass the path of a file") as raised,
            whole_file(tmp_path / name),
        ):
            raise AssertionError
        assert raised.value.filename == str(tmp_path / name)
    assert stat.S_ISFIFO(os.stat(tmp_path / "pipe").st_mode)
    assert sorted(os.listdir(tmp_path)) == ["folder", "link", "pipe"]


@pytest.mark.parametrize("room", [0, 1, 4096, 99_999])
def test_a_full_disk_leaves_the_old_file_and_names_it(tmp_path, room):
    path = tmp_path / "model"
    path.write_bytes(b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        with pytest.raises(OSError, match="File too large") as raised, whole_file(path) as file:
            file.write(bytes(100_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert raised.value.filename == str(path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["model"]


@LINUX
@pytest.mark.parametrize("path", ["/sys/model", "/proc/self/mem"])
def test_a_folder_that_cannot_be_written_is_told(path):
    with pytest.raises(OSError, match="the folder of this file is read-only; choose another folder") as raised:
        check_target(path)
    assert raised.value.filename == path


@pytest.mark.parametrize("length", [200, 230, 255])
def test_a_name_of_any_length_that_the_disk_takes_can_be_written(tmp_path, length):
    path = tmp_path / ("m" * length)
    check_target(path)
    with whole_file(path) as file:
        file.write(b"model")
    assert (path.read_bytes(), os.listdir(tmp_path)) == (b"model", [path.name])
    with pytest.raises(OSError, match="File name too long") as raised:
        check_target(tmp_path / ("m" * 256))
    assert raised.value.filename == str(tmp_path / ("m" * 256))


@LINUX
def test_a_pipe_is_refused_before_the_fit():
    heard, told = os.pipe()
    with open(heard, "rb"), open(told, "wb"), pytest.raises(OSError, match="a device or a pipe"):
        check_target(f"/dev/fd/{told}")


def abandoned(path):
    """Leave the file that a killed writer of `path` leaves."""
    with whole_file(path) as file:
        name = file.name
    os.unlink(path)
    with open(name, "wb") as file:
        file.write(b"half")
    return name


def overwrite(path):
    with whole_file(path) as file:
        file.write(b"new")


@pytest.mark.parametrize("action", [check_target, overwrite])
def test_the_next_writer_removes_what_a_killed_one_left(tmp_path, action):
    other, own = abandoned(tmp_path / "other"), abandoned(tmp_path / "model")
    action(tmp_path / "model")
    assert os.path.exists(other)
    assert not os.path.exists(own)


def test_a_fit_that_goes_on_removes_what_a_killed_one_left(tmp_path):
    path, data = tmp_path / "run.ckpt", make_sequences(8, random_state=0)
    crf = ChainCRF("linear", C=1.0, checkpoint=path).fit(data.X, data.y)
    content = path.read_bytes()
    abandoned(path)
    path.write_bytes(content)
    crf.fit(data.X, data.y)
    assert os.listdir(tmp_path) == ["run.ckpt"]


def test_writers_of_one_file_do_not_disturb_each_other(tmp_path):
    path = tmp_path / "model"
    with whole_file(path) as one:
        one.write(b"one")
        with whole_file(path) as other:
            other.write(b"other")
        assert path.read_bytes() == b"other"
        check_target(path)
    assert (path.read_bytes(), os.listdir(tmp_path)) == (b"one", ["model"])


def test_a_file_that_is_removed_before_it_is_locked_is_made_again(tmp_path, monkeypatch):
    lock, removed = fcntl.flock, []

    def lock_late(file, kind):
        if not removed:
            removed.append(file.name)
            os.unlink(file.name)
        lock(file, kind)

    monkeypatch.setattr(fcntl, "flock", lock_late)
    with whole_file(tmp_path / "model") as file:
        file.write(b"model")
    assert removed
    assert (tmp_path / "model").read_bytes() == b"model"


def test_a_disk_without_locks_is_written_and_nothing_is_removed_there(tmp_path, monkeypatch):
    def refuse(file, kind):
        raise OSError(errno.ENOLCK, "No locks available")

    left = abandoned(tmp_path / "model")
    monkeypatch.setattr(fcntl, "flock", refuse)
    with whole_file(tmp_path / "model") as file:
        file.write(b"model")
    assert sorted(os.listdir(tmp_path)) == [os.path.basename(left), "model"]


def test_a_private_file_is_private_while_it_is_written(tmp_path):
    (tmp_path / "model").touch(mode=0o600)
    with whole_file(tmp_path / "model") as file:
        assert stat.S_IMODE(os.stat(file.name).st_mode) == 0o600


@LINUX
def test_errors_of_reading_name_the_file():
    for opened in (kernelcrf.load, begins_like_model, begins_like_crfsuite, lambda path: next(line_batches(path))):
        with pytest.raises(OSError, match="Input/output error") as raised:
            opened("/proc/self/mem")
        assert raised.value.filename == "/proc/self/mem"


def test_errors_of_the_writer_are_its_own(tmp_path):
    with pytest.raises(FileNotFoundError) as raised, whole_file(tmp_path / "model"):
        (tmp_path / "source").read_bytes()
    assert raised.value.filename == str(tmp_path / "source")
    assert os.listdir(tmp_path) == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("every", "times"), [(9, 35), pytest.param(1, 300, marks=pytest.mark.slow)])
def test_a_save_is_interrupted_at_any_line(tmp_path, every, times):
    trial = saves_interrupted(tmp_path, every)
    assert trial.times > times
    assert trial.failures == []


def test_what_is_no_file_is_not_read(tmp_path):
    with pytest.raises(ModelFileError, match="is a folder or a device: expected a model file"):
        read(tmp_path)
    with pytest.raises(ModelFileError, match="is a folder or a device: expected a model file"):
        kernelcrf.load("/dev/null")
