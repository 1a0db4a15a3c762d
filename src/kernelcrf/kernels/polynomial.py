"""Define `Polynomial`, the polynomial kernel with any degree and any constant term."""

from __future__ import annotations

from dataclasses import dataclass

from ..validation import check_parameters, either, real, whole

PARAMETERS = {
    "degree": either(whole(least=1), advice="other powers are not positive semi-definite"),
    "coef0": either(real(least=0), advice="below 0 the polynomial kernel is not positive semi-definite"),
}


@dataclass(frozen=True)
class Polynomial:
    """The polynomial kernel (gamma x.x' + coef0)^degree; kernel="poly" means Polynomial().

    gamma is a parameter of the estimator.

    Parameters
    ----------
    degree : int, default=3
        The degree: 2 gives all pairs of columns a weight.
    coef0 : float, default=1.0
        The constant. With 0, there are only products of exactly `degree` columns.

    Examples
    --------
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.kernels import Polynomial
    >>> X, y = [[[0.0, 1.0], [1.0, 1.0]], [[1.0, 0.0], [0.0, 0.0]]], [["a", "b"], ["a", "b"]]  # b if both are equal
    >>> crf = ChainCRF(Polynomial(degree=2), C=100.0).fit(X, y)
    >>> [labels.tolist() for labels in crf.predict(X)]
    [['a', 'b'], ['a', 'b']]
    """

    degree: int = 3
    coef0: float = 1.0

    def __post_init__(self) -> None:
        check_parameters(vars(self), PARAMETERS)
