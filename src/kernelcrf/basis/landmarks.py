"""Define `Landmarks`: how many landmarks a kernel has, which rule chooses them, and whether features are stored."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

from kernelcrf.basis.builder import Rule
from kernelcrf.basis.choice import PIVOTS
from kernelcrf.validation import Parameter, either, instance_of, nothing, one_of, whole

AUTO, STORED, RECOMPUTED = "auto", "stored", "recomputed"
FEATURES = either(one_of(AUTO, STORED, RECOMPUTED))
NUMBER = either(whole(least=1), nothing, one_of(AUTO), advice="None uses every distinct input")


@dataclass(frozen=True)
class Landmarks:
    """Options of landmarks for the parameter `n_components` of an estimator: their number, and the rule for choosing.

    A number n as `n_components` means Landmarks(n).

    Parameters
    ----------
    n : int, None or "auto", default=500
        Number of landmarks. None uses every distinct input. "auto" adds landmarks, and stops when it is proved that
        further landmarks would lower the objective by at most the fraction `tol`.
    pivots : str or rule of kernelcrf.basis, default="auto"
        The rule that chooses the landmarks: "greedy", "random", "uniform", "kmeans" or "lloyd". "auto" is "lloyd" for
        dense inputs and smooth kernels such as "rbf", and "random" otherwise.
    features : "auto", "stored" or "recomputed", default="auto"
        Whether a fit stores the features of all training tokens, n numbers per token. "recomputed" computes them
        again from the inputs in each pass over the data, in float64. The result is the same up to rounding, and a
        pass takes several times as long. "auto" stores the features if they need at most half of the memory
        of this machine or, on a cluster, if they fit into the memory of the workers together with the data.

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
    >>> small = KernelClassifier(n_components=Landmarks(20, features="recomputed"), random_state=0).fit(X, y)
    >>> small.certificate_.status
    'optimal'
    """

    n: int | str | None = 500
    pivots: str | Rule = AUTO
    features: str = AUTO

    def __post_init__(self) -> None:
        NUMBER.check("n", self.n)
        PIVOTS.check("pivots", self.pivots)
        FEATURES.check("features", self.features)


NumberOrLandmarks: TypeAlias = int | str | Landmarks | None
N_COMPONENTS = Parameter((*NUMBER.constraints, instance_of(Landmarks, text="Landmarks(n, pivots)")), NUMBER.advice)


def read_landmarks(n_components: NumberOrLandmarks) -> Landmarks:
    """Return the options that the parameter `n_components` of an estimator stands for."""
    given = n_components if isinstance(n_components, Landmarks) else Landmarks(n_components)
    return given if given.n is None or isinstance(given.n, str) else replace(given, n=int(given.n))


def landmarks_to_config(n_components: Any) -> Any:
    """Return `n_components` as a value for JSON; if the rule is an object, return `n_components` unchanged."""
    if isinstance(n_components, Landmarks) and isinstance(n_components.pivots, str):
        return asdict(n_components)
    return n_components


def landmarks_from_config(config: Any) -> Any:
    """Return the value of `n_components` that `landmarks_to_config` converted to `config`."""
    return Landmarks(**config) if isinstance(config, dict) else config
