"""Rules that choose the prior variance C and, if requested, the kernel; `C=` takes a rule or the name of a rule.

A rule only says what to choose. The mathematics is in `fitting/held_out.py` and `fitting/evidence.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import ClassVar

from kernelcrf.arrays import Config, UserData
from kernelcrf.score.terms import PRIOR_VARIANCE
from kernelcrf.validation import (
    FLAG,
    LAG,
    Constraint,
    ParameterError,
    either,
    instance_of,
    nothing,
    one_of,
    shown,
    whole,
)

AUTO, EVIDENCE = "auto", "evidence"
SCORING = either(
    nothing,
    Constraint("the name of a scorer, such as 'span_f1'", lambda value: isinstance(value, str) and value != ""),
    Constraint("a function metric(y_true, y_pred)", callable),
)


class VarianceRule:
    """Base class of the rules that `C=` takes.

    name : the name of the rule in `C=` and in model files.
    is_evidence : whether the rule compares models by the evidence, so that it needs Laplace's approximation.
    optimize_kernel : whether the rule chooses the hyperparameters of the kernel.
    n_restarts : the number of additional searches for these hyperparameters, from other starting points.
    """

    name: ClassVar[str]
    is_evidence: ClassVar[bool] = False
    optimize_kernel: bool = False
    n_restarts: int = 0

    @property
    def of_C(self) -> float | str:
        """Return the number C if the rule does not choose it; otherwise return "auto" or "evidence"."""
        return self.name


@dataclass(frozen=True)
class HeldOut(VarianceRule):
    """Choose C on held-out samples; C="auto" means HeldOut().

    C is the power of 10 whose model gives the labels of held-out samples the highest probability. If the kernel is
    "auto" and inputs are arrays, the kernel is chosen together with C.

    Parameters
    ----------
    scoring : None, str or callable, default=None
        A score to maximise instead of the probability; None keeps the probability. Use a score if some labels are so
        rare that models with a high probability hardly predict them. The score compares the likeliest labels of
        held-out sequences with the true ones. Pass the name of a scorer of `kernelcrf.metrics.get_scorer` that reads
        labels, such as "span_f1" or "flat_f1", or a function metric(y_true, y_pred) of two lists of label sequences.
        Only ChainCRF has this option.
    lag : int or None, default=None
        With `scoring`, score the labels that `ChainCRF.stream` gives to each token after this number of further tokens,
        instead of the labels that `predict` gives to whole sequences.

    Examples
    --------
    >>> from kernelcrf import KernelClassifier
    >>> from kernelcrf.rules import HeldOut
    >>> X, y = [[0.1], [0.9], [0.2], [1.1], [0.0], [0.8]], [0, 1, 0, 1, 0, 1]
    >>> KernelClassifier("linear", C=HeldOut()).fit(X, y).C_ == KernelClassifier("linear", C="auto").fit(X, y).C_
    True
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.datasets import make_sequences
    >>> data = make_sequences(30, random_state=0)
    >>> crf = ChainCRF("linear", C=HeldOut(scoring="flat_f1")).fit(data.X, data.y)
    >>> crf.search_["C"], crf.C_ in crf.search_["C"]
    ([0.01, 0.1, 1.0, 10.0, 100.0, 1000.0], True)
    """

    scoring: str | Callable[..., float] | None = None
    lag: int | None = None

    name: ClassVar[str] = AUTO

    def __post_init__(self) -> None:
        SCORING.check("scoring", self.scoring)
        either(*LAG.constraints, nothing).check("lag", self.lag)
        if self.lag is not None and self.scoring is None:
            raise ParameterError(
                f"HeldOut(lag={self.lag}) has no score of labels: pass scoring='flat_accuracy', or lag=None"
            )


@dataclass(frozen=True)
class Evidence(VarianceRule):
    """Choose C, the kernel, or both by maximising the marginal likelihood; C="evidence" means Evidence().

    The marginal likelihood, also called the evidence, is the probability of the training labels, averaged over the
    prior distribution of the weights.

    Parameters
    ----------
    C : "evidence", "auto" or float, default="evidence"
        "evidence" chooses C. With optimize_kernel=True, C can also be a number, or "auto" for a C that is chosen on
        held-out samples before the search for the kernel.
    optimize_kernel : bool, default=False
        Whether to choose the hyperparameters of the kernel, starting from the given values. A kernel of
        sklearn.gaussian_process has its own bounds; gamma of a named kernel stays between 1 / 1,000 of its first value
        and 1,000 times that value.
    n_restarts : int, default=0
        Number of additional searches for the hyperparameters that start from random values.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from kernelcrf import KernelClassifier
    >>> from kernelcrf.rules import Evidence
    >>> X, y = make_moons(100, noise=0.2, random_state=0)
    >>> rule = Evidence(C=10.0, optimize_kernel=True)
    >>> model = KernelClassifier(RBF(3.0), C=rule, n_components=20, random_state=0).fit(X, y)
    >>> model.C_, bool(model.kernel_.kernel.length_scale < 1.0)
    (10.0, True)
    """

    C: float | str = EVIDENCE
    optimize_kernel: bool = False
    n_restarts: int = 0

    name: ClassVar[str] = EVIDENCE
    is_evidence: ClassVar[bool] = True

    def __post_init__(self) -> None:
        either(one_of(EVIDENCE, AUTO), *PRIOR_VARIANCE.constraints).check("C", self.C)
        FLAG.check("optimize_kernel", self.optimize_kernel)
        either(whole(least=0)).check("n_restarts", self.n_restarts)
        if self.C != EVIDENCE and not self.optimize_kernel:
            raise ParameterError(
                f"Evidence(C={shown(self.C)}) has nothing to choose: pass optimize_kernel=True to choose the kernel, "
                "omit C to choose C, or pass the number C to the estimator"
            )

    @property
    def of_C(self) -> float | str:
        return self.C


RULES: dict[str, type[VarianceRule]] = {rule.name: rule for rule in (HeldOut, Evidence)}
PRIOR_VARIANCE_OR_RULE = either(
    *PRIOR_VARIANCE.constraints,
    one_of(*RULES),
    instance_of(*RULES.values(), text="a rule such as kernelcrf.rules.Evidence()"),
)


def find_C_rule(C: float | str | VarianceRule) -> VarianceRule | None:
    """Return the rule for the parameter `C`, which may be a rule or its name; return None if `C` is a number."""
    if isinstance(C, str):
        return RULES[C]()
    return C if isinstance(C, VarianceRule) else None


def of_C(C: float | str | VarianceRule) -> float | str:
    """Return C itself if it is a number; otherwise return "auto" or "evidence", the name of the rule that chooses C."""
    return C.of_C if isinstance(C, VarianceRule) else C


def C_to_config(C: float | str | VarianceRule) -> float | str | Config:
    """Return the parameter C as a value that JSON can store; `C_from_config` restores it."""
    return {"name": C.name, **asdict(C)} if isinstance(C, VarianceRule) else C  # type: ignore[call-overload]


def C_from_config(config: UserData) -> UserData:
    """Return the parameter C that `C_to_config` has converted to `config`; raise if its rule is unknown."""
    if not isinstance(config, dict):
        return config
    parameters = dict(config)
    name = parameters.pop("name")
    if name not in RULES:
        raise ValueError(f"C={shown(name)} is not a known rule: expected one of {', '.join(RULES)}")
    return RULES[name](**parameters)


__all__ = ["Evidence", "HeldOut"]
