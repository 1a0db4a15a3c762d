"""A file appears whole or not at all, whatever happens on the way."""

import os
import resource
import stat

import pytest

import kernelcrf
from kernelcrf.persistence import ModelFileError, check_target, read, whole_file
from trials.interruption import saves_interrupted


def test_devices_and_folders_are_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    for name in ("pipe", "folder", "link"):
        with (
            pytest.raises(OSError, match="this is a folder or a device; pass the path of a file") as raised,
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


def test_a_folder_that_cannot_be_written_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda folder, mode: False)
    with pytest.raises(PermissionError, match="the folder of this file is read-only") as raised:
        check_target(tmp_path / "model")
    assert raised.value.filename == str(tmp_path / "model")


def test_errors_of_the_writer_are_its_own(tmp_path):
    with pytest.raises(FileNotFoundError) as raised, whole_file(tmp_path / "model"):
        (tmp_path / "source").read_bytes()
    assert raised.value.filename == str(tmp_path / "source")
    assert os.listdir(tmp_path) == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_save_is_interrupted_at_every_line(tmp_path):
    trial = saves_interrupted(tmp_path)
    assert trial.times > 300
    assert trial.failures == []


def test_what_is_no_file_is_not_read(tmp_path):
    with pytest.raises(ModelFileError, match="this is a folder or a device: expected a model file"):
        read(tmp_path)
    with pytest.raises(ModelFileError, match="this is a folder or a device: expected a model file"):
        kernelcrf.load("/dev/null")
