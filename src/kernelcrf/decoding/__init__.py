"""Rules that choose the labels to predict, given the distribution of labellings; `decoding=` accepts their names."""

from dataclasses import asdict
from functools import cache

from kernelcrf.arrays import Config, UserData
from kernelcrf.decoding.auto import Auto
from kernelcrf.decoding.expected_cost import ExpectedCost
from kernelcrf.decoding.expected_f1 import ExpectedF1
from kernelcrf.decoding.expected_span_cost import ExpectedSpanCost
from kernelcrf.decoding.marginal import Marginal
from kernelcrf.decoding.rule import DecodingRule
from kernelcrf.decoding.viterbi import Viterbi
from kernelcrf.validation import Constraint, Parameter, either, one_of, shown

RULES: dict[str, type[DecodingRule]] = {
    rule.name: rule for rule in (Viterbi, Marginal, ExpectedF1, ExpectedCost, ExpectedSpanCost, Auto)
}

VITERBI, MARGINAL, AUTO = Viterbi.name, Marginal.name, Auto.name


@cache
def rules_for(distribution: type) -> Parameter:
    """Return a validator of the parameter `decoding` for estimators with the given class of distributions.

    The validator accepts a rule, or the name of a rule, if the class has all attributes that the rule needs.
    """

    def suits(rule: type[DecodingRule] | DecodingRule) -> bool:
        return all(hasattr(distribution, need) for need in rule.needs)

    def test(value: UserData) -> bool:
        return isinstance(value, DecodingRule) and not isinstance(value, type) and suits(value)

    names = [name for name, rule in RULES.items() if suits(rule)]
    return either(one_of(*names), Constraint("a decoding rule such as Viterbi()", test))


def find_rule(rule: str | DecodingRule) -> DecodingRule:
    """Return the rule called `rule`, with its defaults, or `rule` itself if it is an object and not a name."""
    return RULES[rule]() if isinstance(rule, str) else rule


def rule_to_config(rule: str | DecodingRule) -> str | Config:
    """Return a rule as a value that JSON can store: its name, or a dict of its name and its parameters.

    Raise TypeError if the rule is not in `RULES`, because a reader of the file would not have the class of the rule.
    """
    if isinstance(rule, str):
        return rule
    if type(rule) is not RULES.get(rule.name):
        raise TypeError(
            f"decoding={shown(rule)} cannot be written to a file: expected a rule of kernelcrf.decoding.RULES. Call "
            "set_params(decoding='viterbi'), or save the estimator with joblib.dump, which stores any object."
        )
    return {"name": rule.name, **asdict(rule)}  # type: ignore[call-overload]


def rule_from_config(config: str | Config) -> str | DecodingRule:
    """Return the rule that `rule_to_config` has converted to `config`; raise if the name of the rule is unknown."""
    if isinstance(config, str):
        return config
    parameters = dict(config)
    name = parameters.pop("name")
    if name not in RULES:
        raise ValueError(
            f"the stored decoding rule is {shown(name)}: expected one of {', '.join(RULES)}. The file may be damaged: "
            "use another copy of it"
        )
    return RULES[name](**parameters)


__all__ = ["RULES", "Auto", "DecodingRule", "ExpectedCost", "ExpectedF1", "ExpectedSpanCost", "Marginal", "Viterbi"]
