"""Parquet files that unpack to more than their size allows, and footers and headers that lie."""

import io
import subprocess
import sys

import numpy as np
import pytest

from kernelcrf.distributed import read_parquet
from kernelcrf.formats import FormatError, read, streams
from kernelcrf.formats.parquet import open_parquet
from kernelcrf.formats.parquet_pages import DICTIONARY, StructReader, pages, read_footer

pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")

N, LIMIT = 2_500_000, 1 << 25


def tokens_of_one_word(path):
    words = pa.DictionaryArray.from_arrays(pa.array(np.zeros(N, np.int32)), ["a"])
    pq.write_table(pa.table({"tokens": pa.ListArray.from_arrays([0, N], words)}), path, data_page_size=1 << 30)


def footer_that_says_one_value(path):
    tokens_of_one_word(path)
    blob = path.read_bytes()
    start = len(blob) - 8 - int.from_bytes(blob[-8:-4], "little")
    true = varint(2 * N)
    lie = bytes([0x82] + [0x80] * (len(true) - 2) + [0])
    assert blob.count(true, start) >= 1
    path.write_bytes(blob[:start] + blob[start:].replace(true, lie))


def long_words(path):
    words = pa.DictionaryArray.from_arrays(pa.array(np.zeros(320, np.int32)), ["x" * (1 << 20)])
    rows = pa.ListArray.from_arrays(pa.array(np.arange(0, 321, 10), pa.int32()), words)
    pq.write_table(pa.table({"tokens": rows}), path, compression="zstd", data_page_size=1 << 28)


def long_beginnings(path):
    options = {"column_encoding": {"tokens.list.element": "DELTA_BYTE_ARRAY"}, "data_page_size": 1 << 30}
    table = pa.table({"tokens": [["x" * (1 << 18)]] * 140})
    pq.write_table(table, path, compression="zstd", use_dictionary=False, **options)


def missing_vectors(path):
    vectors = pa.array([None] * 400, pa.list_(pa.float64(), 100_000))
    offsets = pa.array(np.arange(401), pa.int32())
    pq.write_table(pa.table({"vectors": pa.ListArray.from_arrays(offsets, vectors)}), path)


def varint(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes([*out, n])


BOMBS = (tokens_of_one_word, footer_that_says_one_value, long_words, long_beginnings, missing_vectors)
READ = f"""
import resource, sys
import pyarrow.parquet
from kernelcrf.formats import FormatError, read, streams
from kernelcrf.distributed import read_parquet

streams.LEAST = {LIMIT}
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (768 << 20),) * 2)
for path in sys.argv[1:]:
    for way in ("records", "parts"):
        try:
            if way == "records":
                list(read(path))
            else:
                [part() for part in read_parquet(path, labels=None).sources]
            print("read")
        except FormatError as error:
            print(error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory as Linux has them")
def test_what_a_small_file_unpacks_to_is_bounded(tmp_path):
    paths = [tmp_path / f"{bomb.__name__}.parquet" for bomb in BOMBS]
    for bomb, path in zip(BOMBS, paths, strict=True):
        bomb(path)
        assert path.stat().st_size < 64_000
    done = subprocess.run([sys.executable, "-c", READ, *paths], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *said, megabytes = done.stdout.splitlines()
    assert int(megabytes) < 150
    assert len(said) == 2 * len(BOMBS)
    for bomb, records, parts in zip(BOMBS, said[::2], said[1::2], strict=True):
        assert f"{bomb.__name__}.parquet" in records
        assert f"{bomb.__name__}.parquet" in parts
        if bomb is not missing_vectors:
            assert "packed bytes unpack to" in records
            assert f"expected at most {LIMIT:,}" in records


def test_the_way_out_of_the_limit_works(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "LEAST", 1 << 16)
    table = pa.table({"vectors": [[[0.0] * 64] * 10] * 100, "labels": [["a"] * 10] * 100})
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(FormatError, match="write it again with use_dictionary=False, compression='none'"):
        list(read(tmp_path / "a.parquet"))
    pq.write_table(table, tmp_path / "a.parquet", use_dictionary=False, compression="none")
    assert len(list(read(tmp_path / "a.parquet"))) == 100
    (part,) = read_parquet(tmp_path / "a.parquet").sources
    assert part().X.shape == (1000, 64)


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "brotli", "zstd", "lz4"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_pages_are_those_that_arrow_wrote(tmp_path, compression, version):
    rng = np.random.default_rng(0)
    rows = [[f"w={k}" for k in rng.integers(500, size=20)] for _ in range(200)]
    options = {"compression": compression, "data_page_version": version, "data_page_size": 512}
    pq.write_table(pa.table({"tokens": rows, "labels": rows}), tmp_path / "a.parquet", row_group_size=70, **options)
    metadata = pq.read_metadata(tmp_path / "a.parquet")
    with open_parquet(str(tmp_path / "a.parquet")) as source:
        assert list(source.footer.columns) == ["tokens", "labels"]
        for g, group in enumerate(source.footer.groups):
            for k, chunk in enumerate(group):
                found = list(pages(source.file, chunk))
                column = metadata.row_group(g).column(k)
                assert sum(page.n_values for page in found if page.kind != DICTIONARY) == column.num_values
                assert sum(page.packed for page in found) < column.total_compressed_size
                assert len(found) > 3
        assert source.read([0, 1, 2], ["tokens"]).column("tokens").to_pylist() == rows
    assert [record.x for record in read(tmp_path / "a.parquet")] == [[[word] for word in row] for row in rows]


def test_structs_that_are_damaged_are_refused():
    for data, message in [
        (b"", "ends too early"),
        (b"\x15\x80", "ends too early"),
        (b"\x15" + b"\xff" * 12, "more than 64 bits"),
        (b"\x1c" * 20, "nested too deeply"),
        (b"\x19\x19" + b"\x19" * 20, "nested too deeply"),
        (b"\x1d\x00", "unknown type 13"),
        (b"\x18\xff\xff\xff\x7fabc", "ends too early"),
        (b"\x19\xf5\xff\xff\xff\x7fabc", "ends too early"),
    ]:
        with pytest.raises(ValueError, match=message):
            StructReader(io.BytesIO(data), 100).struct()
    assert StructReader(io.BytesIO(b"\x15\x03\x11\x18\x01a\x07\x0a" + bytes(8) + b"\x00more"), 100).struct()[1] == -2


def test_footers_that_do_not_hold_together_are_refused(tmp_path):
    pq.write_table(pa.table({"tokens": [["a"]], "labels": [["x"]]}), tmp_path / "a.parquet")
    blob = (tmp_path / "a.parquet").read_bytes()
    footer = blob[-8 - int.from_bytes(blob[-8:-4], "little") : -8]
    assert [chunk.column for chunk in read_footer(footer).groups[0]] == ["tokens", "labels"]
    for wrong in (b"\x00", b"\x19\x1c\x00\x00", footer.replace(b"\x15\x04\x00\x15", b"\x15\x08\x00\x15", 1)[:-1]):
        with pytest.raises(ValueError, match=r"field|ends too early|the schema"):
            read_footer(wrong)


def test_two_columns_of_one_name_are_refused(tmp_path):
    table = pa.Table.from_arrays([pa.array([["a"]]), pa.array([["b"]])], names=["tokens", "tokens"])
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(FormatError, match=r"a\.parquet: two columns have the name 'tokens': expected distinct"):
        list(read(tmp_path / "a.parquet"))


def test_a_file_that_is_not_there_keeps_the_error_of_the_system(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        list(read(tmp_path / "none.parquet"))
    assert caught.value.filename == str(tmp_path / "none.parquet")
