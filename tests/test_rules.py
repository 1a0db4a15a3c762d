"""Rules that choose C are accepted wherever their names are, and say what is wrong with their parameters."""

import pytest

from kernelcrf import KernelClassifier, MarkovNetwork
from kernelcrf.rules import RULES, Evidence, HeldOut, find_C_rule
from kernelcrf.validation import ParameterError


def test_a_name_means_the_rule_with_its_defaults():
    assert {name: find_C_rule(name) for name in RULES} == {"auto": HeldOut(), "evidence": Evidence()}
    assert find_C_rule(2.0) is None
    assert find_C_rule(rule := Evidence(optimize_kernel=True)) is rule


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"C": 2.0}, "has nothing to choose"),
        ({"C": -1.0, "optimize_kernel": True}, "C=-1.0: expected"),
        ({"C": "most"}, "C='most': expected"),
        ({"optimize_kernel": "yes"}, "optimize_kernel='yes': expected"),
        ({"n_restarts": -1}, "n_restarts=-1: expected"),
    ],
)
def test_a_wrong_parameter_of_a_rule_is_refused_by_its_name(wrong, message):
    with pytest.raises(ParameterError, match=message):
        Evidence(**wrong)


def test_a_rule_is_an_object_and_not_its_class():
    with pytest.raises(ParameterError, match=r"or a rule such as kernelcrf.rules.Evidence\(\)"):
        KernelClassifier(C=Evidence).fit([[0.0], [1.0]], [0, 1])


def test_a_network_without_inputs_has_no_kernel_to_optimize():
    with pytest.raises(ParameterError, match="MarkovNetwork has no kernel of inputs"):
        MarkovNetwork(C=Evidence(optimize_kernel=True)).fit([[0, 1], [1, 0]])
