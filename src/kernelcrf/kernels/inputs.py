"""The kernel of inputs: a positive semi-definite function of two inputs (Remark 7 of the paper).

Users pass a name (`named_kernels` has the formulas), an object of `sklearn.gaussian_process.kernels`, or a callable. A
callable takes two matrices of inputs and returns their Gram matrix, with one row per row of the first matrix and one
column per row of the second. A Gaussian process kernel is a tree of sums, products and powers of simple kernels; a
model file stores this tree as JSON.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeGuard

import numpy as np

from kernelcrf.arrays import Array, Config, DType, Floats, Inputs, UserData, as_inputs, is_sparse
from kernelcrf.kernels.named_kernels import NAMED, NOT_KERNELS, NamedKernel, as_dense, of_polynomial
from kernelcrf.kernels.polynomial import Polynomial
from kernelcrf.kernels.rbf import rbf_against
from kernelcrf.validation import Constraint, either, instance_of, nothing, one_of, real, shown

if TYPE_CHECKING:
    from sklearn.gaussian_process.kernels import Kernel

DIAGONAL_ROWS = 32
GAMMA_RANGE = 1e3
DENSE = "a Gaussian process kernel"


def is_process_kernel(value: object) -> TypeGuard[Kernel]:
    """Return whether `value` is an object of `sklearn.gaussian_process.kernels`."""
    # As long as nobody has imported this module, which takes long, nobody has objects of it.
    kind = getattr(sys.modules.get("sklearn.gaussian_process.kernels"), "Kernel", None)
    return kind is not None and isinstance(value, kind)


KERNEL = either(
    one_of(*NAMED),
    instance_of(Polynomial, text="a Polynomial"),
    Constraint("a callable (X, Y) -> Gram matrix", lambda kernel: callable(kernel) and not isinstance(kernel, type)),
    Constraint("an object of sklearn.gaussian_process.kernels", is_process_kernel),
    advice=f"{' and '.join(map(repr, NOT_KERNELS))} are not positive semi-definite, so no prior has this kernel",
)
GAMMA = either(real(above=0), nothing, advice="None means the default of scikit-learn")
# The names of the polynomial kernel, to which files of version 0.1 add `degree` and `coef0`.
POLYNOMIALS = ("poly", "polynomial")


@dataclass(frozen=True)
class InputKernel:
    """A kernel of inputs. Gram matrices of float32 inputs are float32.

    kernel : a name, a `Polynomial`, an object of `sklearn.gaussian_process.kernels`, or a callable (X, Y) -> Gram
        matrix.
    gamma : parameter of `Polynomial` and of kernels that are chosen by name.
    argument : what the estimator calls its parameter for this kernel; error messages show this name.
    """

    kernel: str | Polynomial | Callable[[Inputs, Inputs], Array] | Kernel = "rbf"
    gamma: float | None = None
    argument: str = field(default="kernel", compare=False, repr=False)

    def __post_init__(self) -> None:
        KERNEL.check(self.argument, self.kernel)
        GAMMA.check("gamma", self.gamma)
        if is_process_kernel(self.kernel):
            from sklearn.gaussian_process.kernels import WhiteKernel

            parts = self.kernel, *self.kernel.get_params().values()
            if any(isinstance(part, WhiteKernel) for part in parts):
                raise ValueError(
                    f"{self.described} contains a WhiteKernel, which stands for noise and is not a function of two "
                    "inputs: remove the WhiteKernel, and set the strength of regularisation with the prior variance C"
                )

    @property
    def described(self) -> str:
        """Return the kernel as error messages show it, such as "kernel='rbf'"."""
        return f"{self.argument}={shown(self.kernel)}"

    @property
    def is_linear(self) -> bool:
        """Return whether the kernel is linear, so that the inputs are the features and no landmarks are needed."""
        return self._named is NAMED["linear"]

    @property
    def is_smooth(self) -> bool:
        """Return whether the kernel is known to be smooth at x = x', so that means of inputs can be landmarks."""
        return self._named is not None and self._named.is_smooth

    @property
    def is_vectorial(self) -> bool:
        """Return whether the kernel is known to accept any vector, such as a mean of inputs; False for callables."""
        return self._named is not None or is_process_kernel(self.kernel)

    @property
    def is_definite(self) -> bool:
        """Return whether the kernel is known to be positive semi-definite; only named kernels and `Polynomial` are."""
        return self._named is not None

    @property
    def reads_gamma(self) -> bool:
        """Return whether the kernel depends on gamma."""
        return self._named is not None and self._named.reads_gamma

    @property
    def _named(self) -> NamedKernel | None:
        if isinstance(self.kernel, Polynomial):
            return of_polynomial(self.kernel)
        return NAMED[self.kernel] if isinstance(self.kernel, str) else None

    def gram(self, X: Inputs, Y: Inputs | None = None, out: Array | None = None) -> Array:
        """Return the Gram matrix: the values k(x, y) for each row x of X and each row y of Y.

        If Y is None, X is used in its place. If `out` is given, the matrix is written into `out`.
        """
        X = as_inputs(X)
        Y = X if Y is None else as_inputs(Y, "Y")
        if X.shape[1] != Y.shape[1]:
            raise ValueError(
                f"X has {X.shape[1]} columns and Y has {Y.shape[1]} columns: pass matrices with the "
                "same number of columns"
            )
        if out is None:
            out = np.empty((X.shape[0], Y.shape[0]), np.result_type(X.dtype, Y.dtype))
        if out.size:
            # Callers that need finite numbers check the result for overflow.
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                self._fill(X, Y, out)
        return out

    def against(self, Y: Inputs, dtype: DType) -> Callable[[Inputs, Array], object]:
        """Return a function (X, out) that writes `gram(X, Y)` into `out`.

        If there are many matrices X, this function is faster than `gram`. Each X must have the dtype `dtype`.
        """
        Y = as_inputs(Y, "Y")
        if self._named is not NAMED["rbf"] or is_sparse(Y) or not Y.size:
            return lambda X, out: self.gram(X, Y, out=out)
        fill = rbf_against(Y, self._gamma(self._named, Y), dtype)
        return lambda X, out: self.gram(X, Y, out=out) if is_sparse(X) else fill(X, out)

    def diagonal(self, X: Inputs) -> Array:
        """Return k(x, x) for each row x of X, without computing the Gram matrix."""
        X = as_inputs(X)
        if self._named is not None:
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                return self._named.diagonal(X, self._gamma(self._named, X))
        if is_process_kernel(self.kernel):
            return np.asarray(self.kernel.diag(as_dense(X, DENSE)), X.dtype)
        starts = range(0, X.shape[0], DIAGONAL_ROWS)
        blocks = [np.diagonal(self.gram(X[i : i + DIAGONAL_ROWS])) for i in starts]
        return np.concatenate([np.empty(0, X.dtype), *blocks])

    def hyperparameters(self) -> tuple[Floats, Floats]:
        """Return the logarithms of the hyperparameters, and the logarithms of their bounds.

        The bounds have one row (low, high) per hyperparameter. A Gaussian process kernel defines its hyperparameters
        and bounds itself. A kernel chosen by name has gamma as its only hyperparameter, with the bounds
        gamma / GAMMA_RANGE and gamma * GAMMA_RANGE. Callables, and kernels without gamma or with
        gamma=None, have no hyperparameters.
        """
        if is_process_kernel(self.kernel):
            theta = np.asarray(self.kernel.theta, np.float64)
            return theta, np.asarray(self.kernel.bounds, np.float64).reshape(len(theta), 2)
        if not self.reads_gamma or self.gamma is None:
            return np.empty(0), np.empty((0, 2))
        theta = np.log([float(self.gamma)])
        return theta, theta[:, None] + np.log([1 / GAMMA_RANGE, GAMMA_RANGE])

    def with_hyperparameters(self, theta: Floats) -> InputKernel:
        """Return the same kernel with new hyperparameters; theta has the logarithms of the new values."""
        if is_process_kernel(self.kernel):
            return replace(self, kernel=self.kernel.clone_with_theta(theta))
        return replace(self, gamma=float(np.exp(theta[0]))) if len(theta) else self

    def to_config(self) -> Config:
        """Return the kernel as a dict for JSON, which `from_config` reads; raise TypeError if it is a callable."""
        if not self.is_vectorial:
            raise TypeError(
                f"{self.described}: a callable cannot be written to a file. Use the name of a kernel or an object of "
                "sklearn.gaussian_process.kernels, or pass the callable again when loading"
            )
        gamma = None if self.gamma is None else float(self.gamma)
        return {"kernel": _describe(self.kernel), "gamma": gamma}

    @classmethod
    def from_config(cls, config: Config) -> InputKernel:
        """Return the kernel that `to_config` converted to the dict `config`."""
        kernel = _build(config["kernel"])
        if isinstance(kernel, str):
            kernel = polynomial_of_0_1(kernel, config)
        return cls(kernel, config["gamma"])

    def _gamma(self, named: NamedKernel, X: Inputs) -> float:
        gamma = named.default_gamma if self.gamma is None else float(self.gamma)
        if gamma is None:
            gamma = 1.0 / X.shape[1] if named.reads_gamma else 1.0
        return gamma

    def _fill(self, X: Inputs, Y: Inputs, out: Array) -> None:
        if self._named is not None:
            self._named.fill(X, Y, self._gamma(self._named, X), out)
            return
        out[...] = (
            self.kernel(as_dense(X, DENSE), as_dense(Y, DENSE))
            if is_process_kernel(self.kernel)
            else self._call(X, Y, out.shape)
        )
        if not np.isfinite(out).all():
            value = out[~np.isfinite(out)][0]
            raise ValueError(
                f"{self.described} returned the value {value}: expected finite numbers. Scale the inputs, for example "
                "with sklearn.preprocessing.StandardScaler, or correct the kernel"
            )

    def _call(self, X: Inputs, Y: Inputs, shape: tuple[int, ...]) -> Array:
        """Call the user's callable and check its result; raise ValueError if the callable raises an error."""
        assert callable(self.kernel)
        try:
            K: Array = np.asarray(self.kernel(X, Y))
        except (MemoryError, RecursionError):
            raise
        except Exception as error:
            raise ValueError(
                f"{self.described} raised {type(error).__name__} for inputs of shapes {X.shape} and {Y.shape}, with "
                f"the message {shown(str(error))}: expected a callable (X, Y) -> Gram matrix"
            ) from error
        if K.shape != shape:
            raise ValueError(
                f"{self.described} returned an array of shape {K.shape} for inputs of {X.shape[0]} and {Y.shape[0]} "
                f"rows: expected {shape}. If your function compares two single inputs, pass a callable (X, Y) that "
                "returns sklearn.metrics.pairwise.pairwise_kernels(X, Y, metric=function)"
            )
        if K.dtype.kind not in "biuf":
            raise TypeError(f"{self.described} returned values of dtype {K.dtype}: expected real numbers")
        return K


def polynomial_of_0_1(kernel: str, config: Config) -> str | Polynomial:
    """Return the name `kernel` of a stored kernel, or a `Polynomial` if its degree and coef0 are not the defaults.

    Files of version 0.1 store degree and coef0 in `config`, beside the name of the kernel.
    """
    if kernel not in POLYNOMIALS:
        return kernel
    form = Polynomial(config.get("degree", 3), config.get("coef0", 1.0))
    return kernel if form == Polynomial() else form


def _describe(value: object) -> object:
    """Convert a kernel object to nested dicts `{"class": name, "parameters": {...}}`."""
    if isinstance(value, Polynomial):
        return {"class": "Polynomial", "parameters": {"degree": int(value.degree), "coef0": float(value.coef0)}}
    if is_process_kernel(value):
        kind, parameters = type(value).__name__, value.get_params(deep=False)
        if getattr(sys.modules["sklearn.gaussian_process.kernels"], kind, None) is not type(value):
            raise TypeError(
                f"kernel={shown(value)} is not an object of sklearn.gaussian_process.kernels and cannot be written to "
                "a file: combine the kernel from objects of that module, or pass the kernel again when loading"
            )
        return {"class": kind, "parameters": {name: _describe(parameter) for name, parameter in parameters.items()}}
    if isinstance(value, np.ndarray | tuple | list):
        return [_describe(item) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(
        f"the kernel has a parameter {value!r}, which cannot be written to a file: expected only numbers, strings and "
        "kernels"
    )


def _build(value: UserData) -> UserData:
    """Convert the result of `_describe` back to a kernel, or to a parameter of a kernel.

    Raise ValueError if the class of a kernel is not in sklearn.gaussian_process.kernels.
    """
    if isinstance(value, list):
        return [_build(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value["class"] == "Polynomial":
        return Polynomial(**value["parameters"])
    from sklearn.gaussian_process import kernels as gp

    kind = getattr(gp, str(value["class"]), None)
    if not (isinstance(kind, type) and issubclass(kind, gp.Kernel)):
        raise ValueError(
            f"the stored kernel has the class {value['class']!r}: expected Polynomial, or a class of "
            "sklearn.gaussian_process.kernels; the model file may be damaged: use another copy of it"
        )
    return kind(**{name: _build(parameter) for name, parameter in value["parameters"].items()})
