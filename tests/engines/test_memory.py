from kernelcrf.engines import memory


def test_the_limit_is_that_of_the_container_or_of_the_machine(tmp_path, monkeypatch):
    file = tmp_path / "memory.max"
    monkeypatch.setattr(memory, "LIMITS", (str(file),))
    machine = memory.memory_limit()
    file.write_text("max\n")
    assert memory.memory_limit() == machine
    file.write_text("1000\n")
    assert memory.memory_limit() == 1000
    monkeypatch.delattr(memory.os, "sysconf", raising=False)
    file.unlink()
    assert memory.memory_limit() is None
