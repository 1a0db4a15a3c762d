"""Define `Landmarks`, which says how many landmarks a kernel has and which rule chooses them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from kernelcrf.basis.builder import Rule
from kernelcrf.basis.choice import PIVOTS
from kernelcrf.validation import Parameter, either, instance_of, nothing, one_of, whole

AUTO = "auto"
NUMBER = either(whole(least=1), nothing, one_of(AUTO), advice="None uses every distinct input")


@dataclass(frozen=True)
class Landmarks:
    """The number of landmarks and the rule that chooses them, for the parameter `n_components` of an estimator.

    A number n as `n_components` means Landmarks(n).

    Parameters
    ----------
    n : int, None or "auto", default=500
        Number of landmarks. None uses every distinct input. "auto" adds landmarks, and stops when it is proved that
        further landmarks would lower the objective by at most the fraction `tol`.
    pivots : str or rule of kernelcrf.basis, default="auto"
        The rule that chooses the landmarks: "greedy", "random", "uniform", "kmeans" or "lloyd". "auto" is "lloyd" for
        dense inputs and smooth kernels such as "rbf", and "random" otherwise.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from kernelcrf import KernelClassifier
    >>> from kernelcrf.basis import Landmarks
    >>> from kernelcrf.basis.pivots import Greedy
    >>> X, y = make_moons(200, noise=0.2, random_state=0)
    >>> KernelClassifier(n_components=Landmarks(20, "kmeans"), random_state=0).fit(X, y).landmarks_.shape
    (20, 2)
    >>> KernelClassifier(n_components=Landmarks(20, Greedy()), random_state=0).fit(X, y).landmarks_.shape
    (20, 2)
    """

    n: int | str | None = 500
    pivots: str | Rule = AUTO

    def __post_init__(self) -> None:
        NUMBER.check("n", self.n)
        PIVOTS.check("pivots", self.pivots)


NumberOrLandmarks: TypeAlias = int | str | Landmarks | None
N_COMPONENTS = Parameter((*NUMBER.constraints, instance_of(Landmarks, text="Landmarks(n, pivots)")), NUMBER.advice)


def number_and_rule(n_components: NumberOrLandmarks) -> tuple[int | str | None, str | Rule]:
    """Return the number of landmarks that `n_components` asks for, and the rule that chooses them."""
    given = n_components if isinstance(n_components, Landmarks) else Landmarks(n_components)
    return given.n if given.n is None or isinstance(given.n, str) else int(given.n), given.pivots


def landmarks_to_config(n_components: Any) -> Any:
    """Return `n_components` as a value for JSON; if the rule is an object, return `n_components` unchanged."""
    if isinstance(n_components, Landmarks) and isinstance(n_components.pivots, str):
        return asdict(n_components)
    return n_components


def landmarks_from_config(config: Any) -> Any:
    """Return the value of `n_components` that `landmarks_to_config` converted to `config`."""
    return Landmarks(**config) if isinstance(config, dict) else config
