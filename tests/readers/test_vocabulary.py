import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

from kernelcrf.readers import vocabulary
from kernelcrf.readers.feature_dicts import vectorize
from kernelcrf.readers.vocabulary import Vocabulary


@pytest.mark.parametrize("n", [0, 1, 2, 5, 6, 1000])
def test_names_are_found_as_in_a_dict(n):
    names = [f"w:{i}" for i in range(n)]
    columns, wanted = {name: i for i, name in enumerate(names)}, [f"w:{i}" for i in range(2 * n + 3)][::-1]
    found = Vocabulary(names).find(wanted, len(wanted))
    assert found.tolist() == [columns.get(name, -1) for name in wanted]


def test_names_with_the_same_slot_stay_apart():
    # The hash of a small integer is the integer itself; all of these have the same last eight bits.
    names = [256 * i for i in range(40)]
    assert Vocabulary(names).find(names, 40).tolist() == list(range(40))


def test_names_with_the_same_hash_stay_apart():
    twins = [7, 7 + sys.hash_info.modulus]
    assert hash(twins[0]) == hash(twins[1])
    assert Vocabulary(["a", *twins]).find([twins[1], "a", "b"], 3).tolist() == [2, 0, -1]


@pytest.mark.parametrize("tokens", [[["a:x", "b"], [], ["a:x", "a:x"]], [{"a": "x", "b": "y"}, {}]])
def test_without_a_table_features_are_the_same(tokens, monkeypatch):
    names = ["a:x", "b:y", "c"]
    fast = vectorize(tokens, Vocabulary(names)).to_csr()
    monkeypatch.setattr(vocabulary, "_fill", lambda *_: False)
    slow = vectorize(tokens, Vocabulary(names)).to_csr()
    np.testing.assert_array_equal(fast.toarray(), slow.toarray())


def test_a_pickle_is_read_by_a_process_with_other_hashes(tmp_path):
    table = Vocabulary(["a", "b"])
    assert table.find(["b"], 1).tolist() == [1]
    path = tmp_path / "table.pickle"
    path.write_bytes(pickle.dumps(table))
    code = f"import pickle; print(pickle.load(open({str(path)!r}, 'rb')).find(['b', 'c', 'a'], 3).tolist())"
    environment = os.environ | {"PYTHONHASHSEED": "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[1, -1, 0]"


@pytest.mark.parametrize("name", [b"a:x", 1, None, ("a", "x")])
def test_a_name_that_is_not_a_string_is_refused(name):
    with pytest.raises(TypeError, match=r"X has the feature name .* expected a string"):
        vectorize([["a:x"], ["b:y", name]], Vocabulary(["a:x", "b:y"]))
