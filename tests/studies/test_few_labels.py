import numpy as np
import pytest

from studies.accuracy import chords, few_labels
from studies.accuracy.few_labels import Scale, Sentences


def test_features_stay_inside_their_sentence():
    first, last = few_labels.features(["Ada", "met", "IBM"])[0], few_labels.features(["Ada", "met", "IBM"])[2]
    assert {"l=ada", "k=title", "k[-1]=-", "k[-2]=-", "l[1]=met", "kk=-|title|lower"} <= set(first)
    assert {"k[1]=-", "l[1]=-", "l[-1]=met", "kk=lower|upper|-"} <= set(last)


def test_vectors_are_standardised_and_have_those_of_both_neighbours():
    rows = np.random.default_rng(0).normal(3.0, 2.0, size=(5, 4))
    data = Sentences([["a", "b", "c"], ["d", "e"]], [["O"] * 3, ["O"] * 2], [rows[:3], rows[3:]])
    first, second = Scale.of(data).inputs(data)
    v = np.concatenate([first["vectors"], second["vectors"]])
    np.testing.assert_allclose(v.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(np.square(v).sum(axis=1).mean(), 1.0, atol=1e-5)
    np.testing.assert_array_equal(first["near"][1], [*v[0], *v[2]])
    np.testing.assert_array_equal(second["near"], [[0, 0, 0, 0, *v[4]], [*v[3], 0, 0, 0, 0]])


def test_f1_and_its_difference_by_hand(monkeypatch):
    y, good, bad = [["B-x", "O"]] * 40, [["B-x", "O"]] * 40, [["B-x", "O"], ["O", "B-x"]] * 20
    rows = {
        name: {"ai": {"test": {"viterbi": few_labels.written(few_labels.counts(y, tags))}}}
        for name, tags in (("a", good), ("b", bad))
    }
    monkeypatch.setattr(few_labels, "CROSSNER", ("ai",))
    assert few_labels.f1_of({"rows": rows}, "b") == pytest.approx([50.0])
    gain, p = few_labels.difference({"rows": rows}, ("a", "viterbi"), ("b", "viterbi"))
    assert (gain, p) == (pytest.approx(50.0), pytest.approx(0.001))
    assert few_labels.difference({"rows": rows}, ("a", "viterbi"), ("a", "viterbi"))[1] == 1.0


def test_shares_of_folds_are_those_of_all_events_together():
    one = {"right": 3, "events": 4, "both": 1, "found": 2, "true": 2}
    other = {"right": 1, "events": 12, "both": 0, "found": 4, "true": 2}
    assert chords.shares([{"runs": one}, {"runs": other}], "runs") == (25.0, 20.0)
