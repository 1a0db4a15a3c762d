"""The folder that `tag_parquet` writes to; tests/distributed/test_cluster.py kills workers of a real cluster."""

import json
import os

import pytest

from clusters import Inline
from kernelcrf import ChainCRF
from kernelcrf.distributed import read_parquet, tag_parquet
from kernelcrf.formats import FormatError

pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")

WORDS = [[["w=a"], ["w=b"]], [["w=b"]], [["w=c"], ["w=a"]]]
ENGINE = Inline(forgetful=False)


def model(first, second, **parameters):
    """A model that gives the first label to w=a and the second one to all other words."""
    y = [[first if token == ["w=a"] else second for token in x] for x in WORDS]
    return ChainCRF("linear", C=10.0, **parameters).fit(WORDS * 3, y * 3)


@pytest.fixture(scope="module")
def one():
    return model("A", "B")


@pytest.fixture(scope="module")
def other():
    return model("X", "Y")


@pytest.fixture
def source(tmp_path):
    pq.write_table(pa.table({"features": WORDS, "id": [1, 2, 3]}), tmp_path / "data.parquet", row_group_size=1)
    return tmp_path / "data.parquet"


def labels(folder):
    return pq.read_table(folder).column("labels").to_pylist()


EXPECTED = [["A", "B"], ["B"], ["B", "A"]]


def test_labels_of_another_model_are_not_taken_for_those_of_this_one(one, other, source, tmp_path):
    tag_parquet(one, source, tmp_path / "out", engine=ENGINE)
    with pytest.raises(FormatError, match=r"out: the folder has labels from another run, which differs in its model:"):
        tag_parquet(other, source, tmp_path / "out", engine=ENGINE)
    assert labels(tmp_path / "out") == EXPECTED
    tag_parquet(other, source, tmp_path / "new", engine=ENGINE)
    assert labels(tmp_path / "new") == [["X", "Y"], ["Y"], ["Y", "X"]]


def test_predictions_do_not_replace_a_column_that_is_kept(one, source, tmp_path):
    with pytest.raises(ValueError, match=r"keep=\['labels'\] has 'labels'"):
        tag_parquet(one, source, tmp_path / "out", keep=["labels"], engine=ENGINE)


def test_a_run_with_other_options_or_another_source_is_another_run(one, source, tmp_path):
    tag_parquet(one, source, tmp_path / "out", engine=ENGINE)
    with pytest.raises(FormatError, match="which differs in its options:"):
        tag_parquet(one, source, tmp_path / "out", keep=["id"], engine=ENGINE)
    pq.write_table(pa.table({"features": WORDS[::-1]}), source, row_group_size=1)
    os.utime(source, ns=(10**18, 10**18))
    with pytest.raises(FormatError, match="which differs in its options and source: expected an empty folder"):
        tag_parquet(one, source, tmp_path / "out", probabilities=True, engine=ENGINE)


def test_the_same_run_goes_on_with_the_parts_that_are_missing(one, source, tmp_path):
    told = tag_parquet(one, source, tmp_path / "out", engine=ENGINE)
    parts = sorted((tmp_path / "out").glob("*.parquet"))
    before = [part.stat().st_mtime_ns for part in parts]
    parts[1].unlink()
    # A fit of the same data is the same model, whatever the seconds of its curves.
    again = tag_parquet(model("A", "B", verbose=0, n_jobs=2), source, tmp_path / "out", engine=ENGINE)
    assert (again.sequences, again.tokens) == (told.sequences, told.tokens) == (3, 5)
    after = [part.stat().st_mtime_ns for part in parts]
    assert (after[0], after[2]) == (before[0], before[2])
    assert labels(tmp_path / "out") == EXPECTED


def test_a_folder_with_other_files_is_refused_as_it_is(one, source, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("keep me")
    with pytest.raises(FormatError, match=r"out: the folder has other files, such as 'notes.txt': expected an empty"):
        tag_parquet(one, source, tmp_path / "out", engine=ENGINE)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["notes.txt"]


def test_a_part_of_another_run_is_named(one, source, tmp_path):
    tag_parquet(one, source, tmp_path / "out", engine=ENGINE)
    part = tmp_path / "out" / "part-000001.parquet"
    pq.write_table(pa.table({"labels": [["A"]]}), part)
    with pytest.raises(FormatError, match=r"part-000001\.parquet: the file comes from another run: .* Remove the file"):
        tag_parquet(one, source, tmp_path / "out", engine=ENGINE)
    part.write_bytes(b"nothing")
    with pytest.raises(
        FormatError, match=r"part-000001\.parquet: expected a part that this run wrote; remove the file"
    ):
        tag_parquet(one, source, tmp_path / "out", engine=ENGINE)


def test_partial_files_are_not_read_and_go_with_the_next_run(one, source, tmp_path):
    tag_parquet(one, source, tmp_path / "out", engine=ENGINE)
    partial = tmp_path / "out" / ".part-000001.parquet.0123456789abcdef.partial"
    partial.write_bytes(b"PAR1 half")
    (tmp_path / "out" / "part-000001.parquet").unlink()
    assert labels(tmp_path / "out") == [EXPECTED[0], EXPECTED[2]]
    assert len(read_parquet(tmp_path / "out")) == 2
    tag_parquet(one, source, tmp_path / "out", engine=ENGINE)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "_run.json",
        *(f"part-{k:06d}.parquet" for k in range(3)),
    ]
    assert labels(tmp_path / "out") == EXPECTED


def test_a_part_that_cannot_be_written_leaves_no_partial_file(one, source, tmp_path):
    tag_parquet(one, source, tmp_path / "out", engine=ENGINE)
    part = tmp_path / "out" / "part-000001.parquet"
    part.unlink()
    part.mkdir()
    with pytest.raises(OSError, match=r"part-000001\.parquet"):
        tag_parquet(one, source, tmp_path / "out", engine=ENGINE)
    assert not list((tmp_path / "out").glob(".*"))


def test_a_model_that_no_file_can_hold_is_a_run_of_its_own(source, tmp_path):
    crf = ChainCRF(lambda a, b: (a @ b.T).toarray(), n_components=3, random_state=0, C=1.0)
    y = [["B"] * len(x) for x in WORDS]
    y[0][0] = "A"
    crf.fit(WORDS, y)
    told = tag_parquet(crf, source, tmp_path / "out", engine=ENGINE)
    assert told.sequences == 3
    with pytest.raises(FormatError, match="which differs in its model:"):
        tag_parquet(crf, source, tmp_path / "out", engine=ENGINE)


def test_a_manifest_that_was_damaged_is_of_another_run(one, source, tmp_path):
    tag_parquet(one, source, tmp_path / "out", engine=ENGINE)
    manifest = tmp_path / "out" / "_run.json"
    assert set(json.loads(manifest.read_text())) == {"model", "source", "options", "version"}
    manifest.write_text("[1,")
    with pytest.raises(FormatError, match="differs in its model and options and source and version"):
        tag_parquet(one, source, tmp_path / "out", engine=ENGINE)
