import gzip
from collections import Counter

import numpy as np
import pytest

from kernelcrf.datasets import load_conll2000, load_prosody, load_wnut17
from kernelcrf.metrics import spans


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()))


@pytest.mark.parametrize(
    ("subset", "sentences", "tokens", "chunks", "tags"),
    [("train", 8_936, 211_727, 106_978, 22), ("test", 2_012, 47_377, 23_852, 19)],
)
def test_conll_2000_has_the_counts_of_the_shared_task(data_folder, subset, sentences, tokens, chunks, tags):
    data = load_conll2000(subset, folder=data_folder)
    assert (len(data.X), data.lengths.sum()) == (sentences, tokens)
    assert sum(len(spans(y)) for y in data.y) == chunks
    assert len(np.unique(np.concatenate(data.y))) == tags
    assert data.X[0][0].keys() == {"word", "pos"}
    assert data.y[0][0] == "B-NP"


def test_one_tag_of_conll_2000_is_new_in_the_test_set(data_folder):
    train, test = ({*np.concatenate(load_conll2000(part, folder=data_folder).y)} for part in ("train", "test"))
    assert test - train == {"I-LST"}


@pytest.mark.parametrize(
    ("subset", "posts", "tokens", "entities"),
    [("train", 3_394, 62_730, 1_975), ("dev", 1_009, 15_733, 836), ("test", 1_287, 23_394, 1_079)],
)
def test_wnut_17_has_the_counts_of_the_shared_task(data_folder, subset, posts, tokens, entities):
    data = load_wnut17(subset, folder=data_folder)
    assert (len(data.X), data.lengths.sum()) == (posts, tokens)
    assert sum((np.char.startswith(y, "B-")).sum() for y in data.y) == entities
    types = {"person", "location", "corporation", "group", "product", "creative-work"}
    assert {*np.concatenate(data.y)} == {"O", *(f"{mark}-{kind}" for mark in "BI" for kind in types)}


@pytest.mark.parametrize(
    ("release", "subset", "sentences", "speakers", "counts", "missing"),
    [
        ("final", "dev", 5_727, 40, [47_535, 27_454, 24_211], 14_399),
        ("final", "test", 4_822, 39, [43_234, 24_543, 22_286], 12_583),
        pytest.param(*("early", "train_100", 33_047, 245, [292_036, 154_467, 124_205], 82_647), marks=pytest.mark.slow),
        ("early", "dev", 5_728, 40, [51_396, 26_375, 21_450], 14_400),
        ("early", "test", 4_824, 39, [45_818, 24_168, 20_087], 12_590),
    ],
)
def test_prosody_has_the_counts_of_its_release(data_folder, release, subset, sentences, speakers, counts, missing):
    data = load_prosody(subset, release=release, folder=data_folder)
    y = np.concatenate(data.y)
    assert len(data.X) == len({*data.ids}) == sentences
    assert len({*data.groups}) == speakers
    assert np.bincount(y + 1).tolist() == [missing, *counts]
    np.testing.assert_array_equal(np.concatenate(data.eval_mask), y >= 0)
    binary = np.concatenate(load_prosody(subset, n_classes=2, release=release, folder=data_folder).y)
    assert np.bincount(binary + 1).tolist() == [missing, counts[0], counts[1] + counts[2]]


def test_prosody_has_the_published_accuracy_of_the_majority(data_folder):
    for n_classes, accuracy in [(2, 0.520), (3, 0.480)]:
        data = load_prosody("test", n_classes=n_classes, folder=data_folder)
        y = np.concatenate(data.y)[np.concatenate(data.eval_mask)]
        assert np.bincount(y).max() / len(y) == pytest.approx(accuracy, abs=5e-4)


def test_real_values_of_prosody_are_missing_where_the_grades_are(data_folder):
    data = load_prosody("dev", folder=data_folder)
    flat = {name: np.concatenate(column) for name, column in data.extras.items()}
    y = np.concatenate(data.y)
    np.testing.assert_array_equal(np.isnan(flat["prominence_value"]), y < 0)
    np.testing.assert_array_equal(np.isnan(flat["boundary_value"]), flat["boundary"] < 0)
    assert Counter(zip((y < 0).tolist(), (flat["boundary"] < 0).tolist(), strict=True)) == {
        (False, False): 99_184,
        (True, True): 14_365,
        (True, False): 34,
        (False, True): 16,
    }


def test_prosody_by_hand(tmp_path):
    text = "<file>\t84_1_2.txt\nA\t0\t2\t0.1\t1.5\n.\tNA\tNA\tNA\tNA\n<file>\t7_3_4.txt\nHe\t2\tNA\t3.0\tNA\n"
    write(tmp_path / "helsinki_prosody" / "dev.txt.gz", text)
    data = load_prosody(folder=tmp_path)
    assert data.X == [[{"word": "A"}, {"word": "."}], [{"word": "He"}]]
    assert [y.tolist() for y in data.y] == [[0, -1], [2]]
    assert [mask.tolist() for mask in data.eval_mask] == [[True, False], [True]]
    assert data.ids.tolist() == ["84_1_2.txt", "7_3_4.txt"]
    assert data.groups.tolist() == ["84", "7"]
    assert [column.tolist() for column in data.extras["boundary"]] == [[2, -1], [-1]]
    np.testing.assert_array_equal(np.concatenate(data.extras["boundary_value"]), [1.5, np.nan, np.nan])
    assert load_prosody(n_classes=2, folder=tmp_path).y[1].tolist() == [1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("A\t0\t2\t0.1\t1.5\n", "line 1: expected '<file>"),
        ("<file>\ta.txt\n", "has no rows"),
        ("<file>\ta.txt\nA\t0\t2\n", r"line 2: expected 5 cells, none of them empty, got \['A', '0', '2'\]"),
        ("<file>\ta.txt\nA\t3\t2\t0.1\t0\n", r"column prominence: expected 0, 1, 2 or NA, got \['3'\]"),
        ("<file>\ta.txt\nA\t0\t2\tx\t0\n", "column prominence_value: expected values of type float64"),
    ],
)
def test_prosody_that_is_wrong_is_named(text, message, tmp_path):
    write(tmp_path / "helsinki_prosody" / "dev.txt.gz", text)
    with pytest.raises(ValueError, match=message):
        load_prosody(folder=tmp_path)


@pytest.mark.parametrize("text", ["a\tO\nb\tO\n\nc\tB-x\n\n", "\n\na\tO\nb\tO\n\n\n\nc\tB-x", "a\tO\nb\tO\n\nc\tB-x\n"])
def test_sentences_end_at_empty_lines_and_at_the_end(text, tmp_path):
    write(tmp_path / "wnut17_ner" / "dev.txt.gz", text)
    data = load_wnut17("dev", folder=tmp_path)
    assert data.X == [[{"word": "a"}, {"word": "b"}], [{"word": "c"}]]
    assert [y.tolist() for y in data.y] == [["O", "O"], ["B-x"]]


def test_characters_that_unicode_counts_as_blanks_or_line_ends_are_words(tmp_path):
    words = ["\u3000", "\x85", "\u2028", "\x0c", "a\u00a0b"]
    write(tmp_path / "wnut17_ner" / "dev.txt.gz", "".join(f"{word}\tO\n" for word in words))
    assert [token["word"] for token in load_wnut17("dev", folder=tmp_path).X[0]] == words


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n\n", "has no rows"),
        ("a\tO\n\nb O\n", r"line 3: expected 2 cells, none of them empty, got \['b O'\]"),
        ("a\tO\tO\nb\n", "line 1: expected 2 cells"),
        ("a\tO\n\t\nb\tO\n", r"line 2: expected 2 cells, none of them empty, got \['', ''\]"),
    ],
)
def test_a_line_that_is_wrong_is_named(text, message, tmp_path):
    write(tmp_path / "wnut17_ner" / "test.txt.gz", text)
    with pytest.raises(ValueError, match=message):
        load_wnut17("test", folder=tmp_path)
