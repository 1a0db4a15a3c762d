"""Model files whose headers claim more than the files hold: every integer multiplied, alone and with its partners."""

import json
import os
import tracemalloc
from contextlib import contextmanager

from safetensors import safe_open
from safetensors.numpy import save_file

from kernelcrf.persistence.long_lists import ARRAYS, pack, unpack

FACTORS = (10**3, 10**6, 10**9)
GIGABYTE = 1 << 30
# The names of integers in headers that mean the same, such as a number of columns.
PARTNERS = [
    ("n_features", "d", "n"),
    ("n_features", "d"),
    ("L", "longest"),
    ("L", "n"),
    ("longest",),
    ("shape", "n_features"),
]


@contextmanager
def limited(most):
    """Limit the memory of the process, and raise if the block takes more than `most` bytes at once."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 4 * GIGABYTE, before[1]))
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        resource.setrlimit(resource.RLIMIT_AS, before)
    assert peak <= most, f"{peak:,} bytes, and a file of this size may take {most:,}"


def most_bytes(path):
    """Return the memory that the model of a file may take."""
    return 20 * os.path.getsize(path) + 50_000_000


def content(path):
    """Return the header and the tensors of a file, with all lists in the header."""
    with safe_open(path, framework="numpy") as file:
        config = json.loads(file.metadata()["config"])
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    return unpack(config, {name: arrays.pop(name) for name in list(arrays) if name in ARRAYS}), arrays


def forge(path, config, arrays):
    packed, lists = pack(config)
    save_file({**arrays, **lists}, path, metadata={"config": json.dumps(packed)})


def integers(value, key=""):
    """Yield, for each integer of a JSON value, the list or dict that has it, its place, and the nearest name."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for place, one in items:
        name = place if isinstance(place, str) else key
        if type(one) is int and name not in ("version",):
            yield value, place, name
        else:
            yield from integers(one, name)


def forgeries(config):
    """Return tuples of the numbers of integers that are forged together, first single integers, then partners."""
    found = list(integers(config))
    groups = [(i,) for i in range(len(found))]
    for names in PARTNERS:
        for value in {holder[place] for holder, place, name in found if name in names} - {0, 1}:
            groups.append(tuple(i for i, (at, place, name) in enumerate(found) if name in names and at[place] == value))
    return dict.fromkeys(groups)


def check_forgeries(path, target, answer, factors):
    """Load the file with each integer and each group of partners multiplied; return how many files were refused.

    answer : a function that loads a file and asks its model, and returns "answered" or the reason of the refusal.
    """
    config, arrays = content(path)
    text, refused = json.dumps(config), 0
    for group in forgeries(config):
        for factor in factors:
            forged = json.loads(text)
            found = list(integers(forged))
            for holder, place, _ in (found[i] for i in group):
                holder[place] *= factor
            forge(target, forged, arrays)
            try:
                reason = answer(target)
            except BaseException as error:
                error.add_note(f"{[found[i][2] for i in group]} times {factor:,}")
                raise
            assert "allocate" not in reason
            assert "not enough memory" not in reason
            refused += reason != "answered"
    return refused
