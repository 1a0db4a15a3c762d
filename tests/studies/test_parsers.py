import numpy as np
import pytest

from studies.accuracy.parsers import best_rows, committee, count, reviewed


def test_a_reviewer_stops_at_the_last_of_95_per_cent_of_the_wrong_items():
    wrong = np.array([False, True, True, False])
    assert reviewed(wrong, np.log([0.9, 0.2, 0.6, 0.5])) == 0.75
    assert reviewed(~wrong, np.log([0.9, 0.2, 0.6, 0.5])) == 1.0
    assert reviewed(np.zeros(3, bool), np.zeros(3)) == 0.0
    twenty = np.arange(40) < 20
    assert reviewed(twenty, np.arange(40.0)) == 19 / 40


def test_a_committee_takes_the_highest_mean_of_log_probabilities():
    first = [[(["a", "b"], np.log(0.6)), (["b", "b"], np.log(0.4))]]
    second = [[(["b", "b"], np.log(0.9)), (["a", "a"], np.log(0.1))]]
    ((labels, log_p),) = committee([first, second])[0]
    assert labels == ["b", "b"]
    weights = np.sqrt([0.4 * 0.9, 0.6 * 0.1, 0.4 * 0.1])
    assert log_p == pytest.approx(np.log(weights[0] / weights.sum()))


def test_fields_are_tags_or_runs_of_labels():
    assert count(["a", "a", "b"], ["a", "b", "b"]) == [1, 3, 0, 2, 2]
    assert count(["B-a", "B-a", "O"], ["B-a", "I-a", "O"]) == [1, 3, 0, 1, 2]
    assert count(["O", "B-a"], ["O", "O"]) == [1, 2, 0, 0, 1]


def test_each_training_set_chooses_its_model_by_items_then_tokens_then_the_first():
    right = {"a": [[5, 40], [5, 40], [5, 40]], "b": [[5, 41], [4, 50], [5, 40]]}
    choices = {row: [{"C": 1.0, "right": one} for one in of_splits] for row, of_splits in right.items()}
    assert best_rows(choices) == ["b", "a", "a"]
