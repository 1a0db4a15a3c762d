"""The page on the way of the data has the files that a fit enters, in their order, each once."""

import re
import sys
from pathlib import Path

import numpy as np

import kernelcrf
from kernelcrf import ChainCRF

ROOT, SOURCE = Path(__file__).parents[2], Path(kernelcrf.__file__).parent
MOST_FILES = 12


def steps():
    page = (ROOT / "docs" / "extend" / "data.md").read_text(encoding="utf-8")
    return re.findall(r"^\| `([\w/]+\.py)` \| `([\w.]+)` \|", page, re.MULTILINE)


def entered():
    """The functions that a fit calls, in the order of their first call."""
    rng, calls = np.random.default_rng(0), dict.fromkeys([])
    X, y = [rng.normal(size=(5, 3)) for _ in range(6)], [["a", "b", "a", "b", "a"]] * 6

    def note(frame, event, argument):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(SOURCE)):
            calls[Path(code.co_filename).relative_to(SOURCE).as_posix(), code.co_qualname] = None

    crf = ChainCRF("rbf", C=1.0, n_components=5, random_state=0)
    sys.setprofile(note)
    try:
        crf.fit(X, y)
    finally:
        sys.setprofile(None)
    return list(calls)


def test_a_fit_enters_the_files_of_the_page_in_their_order():
    calls = entered()
    places = [calls.index(step) for step in steps()]
    assert places == sorted(places)


def test_no_file_is_entered_twice_and_they_are_few():
    files = [file for file, _ in steps()]
    assert len(files) == len(set(files)) <= MOST_FILES
