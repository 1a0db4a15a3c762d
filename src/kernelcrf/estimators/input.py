"""Input: one of several inputs of an estimator, with its own kernel, landmarks and prior variance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Annotated, Any

from kernelcrf.arrays import Config
from kernelcrf.basis.landmarks import (
    N_COMPONENTS,
    RECOMPUTED,
    STORED,
    NumberOrLandmarks,
    landmarks_from_config,
    landmarks_to_config,
    read_landmarks,
)
from kernelcrf.estimators.parameters import GAMMA, ValidatedEstimator, declared_parameters
from kernelcrf.kernels.gamma import KERNEL_OR_AUTO, make_kernel, resolve_kernel
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.models.kernel import kernel_parameter
from kernelcrf.models.stored_parts import plain
from kernelcrf.readers.inputs import InputsReader
from kernelcrf.score.cliques import OF_INPUTS, TOKENS
from kernelcrf.score.terms import BETWEEN, OF_INPUT, PRIOR_VARIANCE
from kernelcrf.validation import Constraint, either, instance_of, is_listed, nothing, one_of

ENTRY = either(instance_of(str, text="the name of an entry"), nothing)
COLUMNS = either(
    nothing,
    instance_of(slice, str, text="a slice, or the name of a column"),
    Constraint("a list of indices or names", lambda value: is_listed(value) and len(value) > 0),
)
LIKELY_LANDMARKS = 500


@dataclass(eq=False, repr=False)
class Input(ValidatedEstimator):
    """One of several inputs of an estimator, with its own kernel, landmarks and prior variance.

    Parameters
    ----------
    kernel : "auto", str, Polynomial, callable or kernel of sklearn.gaussian_process, default="auto"
        The kernel of this input, as in ChainCRF. "auto" is "linear" for feature dicts and sparse matrices, and "rbf"
        for arrays and data frames.
    gamma : "scale", "auto" or float, default="scale"
        Coefficient of the kernel, as in sklearn.svm.SVC. "scale" uses the variance of this input.
    n_components : int, None, "auto" or Landmarks(n, pivots), default=500
        Number of landmarks of this input, as in ChainCRF.
    C : float or None, default=None
        Prior variance of the weights of this input. None uses the C of the estimator; if that is "auto" or "evidence",
        `fit` chooses a separate C for this input.
    of : str or None, default=None
        Name of the entry that this input reads from a dict: from each sequence, from the node features of each graph
        or, if samples are rows, from X. None uses the name of the input. Two inputs with the same `of` read the same
        entry.
    columns : None, slice, str, or list of int or str, default=None
        Columns that this input reads: indices, or names of columns of data frames; None reads all columns.
    scores : "tokens", "steps", "starts" or "ends", default="tokens"
        What the input scores. "tokens" are the labels of all tokens, "starts" and "ends" those of first and of last
        tokens. "steps" are the steps from one label to the next, with the input at the second of the two tokens; they
        need ChainCRF, and their scores are added to the constant ones in `transitions_`. For rows and for nodes
        of graphs, use "tokens": the input then scores all rows or nodes.

    Examples
    --------
    >>> from kernelcrf import ChainCRF, Input
    >>> from kernelcrf.datasets import make_sequences
    >>> data = make_sequences(60, random_state=0)  # the arrays have two columns
    >>> inputs = {"first": Input("rbf", columns=[0], n_components=20), "second": Input("linear", columns=[1])}
    >>> crf = ChainCRF(inputs=inputs, C=10.0, random_state=0).fit(data.X, data.y)
    >>> crf.certificate_.status  # the score of a label is a sum of functions of one column each
    'optimal'
    >>> X = [{"words": [["the"], ["dog"]], "vectors": [[0.1, 0.3], [1.2, 0.8]]}]  # one sequence with two inputs
    >>> both = ChainCRF(inputs={"words": Input(), "vectors": Input("rbf")}, C=10.0).fit(X, [["DET", "NOUN"]])
    >>> both.predict(X)[0].tolist()
    ['DET', 'NOUN']
    >>> between = {"tokens": "rbf", "steps": Input("linear", scores="steps")}  # both read the whole sequence
    >>> ChainCRF(inputs=between, C=10.0, random_state=0).fit(data.X, data.y).edge_coef_.shape
    (2, 3, 3)
    """

    kernel: Annotated[Any, KERNEL_OR_AUTO] = "auto"
    _: KW_ONLY
    gamma: Annotated[float | str, GAMMA] = "scale"
    n_components: Annotated[NumberOrLandmarks, N_COMPONENTS] = 500
    C: Annotated[float | None, either(*PRIOR_VARIANCE.constraints, nothing)] = None
    of: Annotated[str | None, ENTRY] = None
    columns: Annotated[Any, COLUMNS] = None
    scores: Annotated[str, either(one_of(*OF_INPUTS))] = TOKENS

    @classmethod
    def of_kernel(cls, given: Any) -> Input:
        """Return `given` if it is an input; if it is a kernel, return `Input(given)`."""
        return given if isinstance(given, cls) else cls(given)

    def check(self, name: str) -> None:
        """Raise if a parameter is wrong; the error shows `name`, the name of this input."""
        for parameter, constraint in declared_parameters(Input).items():
            constraint.check(OF_INPUT + name + BETWEEN + parameter, getattr(self, parameter))

    def make_kernel(self, name: str, reader: InputsReader, by_scale: Callable[[str], float]) -> InputKernel:
        """Return the kernel of this input; `name` is the name of the input.

        by_scale : a function that computes gamma from the input of a given name, for gamma="scale".
        """
        kernel, argument = resolve_kernel(self.kernel, reader.is_sparse(name)), kernel_parameter(OF_INPUT + name)
        width = reader.width(name)
        return make_kernel(width, partial(by_scale, name), kernel, self.gamma, argument)

    def expected_features(self, *, sparse: bool) -> tuple[int, int]:
        """Return the likely number of stored features of a token, without those of the linear kernel, as two numbers.

        The first number holds if there is memory for all features, the second if there is not.
        """
        if InputKernel(resolve_kernel(self.kernel, sparse)).is_linear:
            return 0, 0
        landmarks = read_landmarks(self.n_components)
        n = landmarks.n if isinstance(landmarks.n, int) else LIKELY_LANDMARKS
        return n * (landmarks.features != RECOMPUTED), n * (landmarks.features == STORED)

    def to_config(self) -> Config:
        """Return the parameters as a dict that JSON can store; a kernel that is not a string becomes None."""
        config = self.get_params(deep=False)
        columns = self.columns
        if isinstance(columns, slice):
            config["columns"] = {"slice": [columns.start, columns.stop, columns.step]}
        elif is_listed(columns):
            config["columns"] = [plain(column, "columns") for column in columns]
        config["kernel"] = self.kernel if isinstance(self.kernel, str) else None
        config["n_components"] = landmarks_to_config(self.n_components)
        return {parameter: plain(value, parameter) for parameter, value in config.items()}

    @classmethod
    def from_config(cls, config: Config, kernel: InputKernel) -> Input:
        """Return the input that `to_config` has converted to `config`; `kernel` is the stored kernel of this input."""
        config = dict(config)
        if isinstance(config["columns"], dict):
            config["columns"] = slice(*config["columns"]["slice"])
        if not isinstance(config["kernel"], str):
            config["kernel"] = kernel.kernel
        config["n_components"] = landmarks_from_config(config["n_components"])
        return cls(**config)


def is_mapping_of_inputs(value: Any) -> bool:
    """Return whether a value is a dict from names to inputs or kernels, with at least one entry."""
    is_mapping = isinstance(value, Mapping) and len(value) > 0
    return is_mapping and all(isinstance(one, Input) or KERNEL_OR_AUTO.accepts(one) for one in value.values())


INPUTS = either(Constraint("a dict from names to kernels or kernelcrf.Input", is_mapping_of_inputs), nothing)
OF_ONE_INPUT = ("kernel", "gamma", "n_components")
"""Parameters of estimators that belong to one input, and are set for each of several inputs."""
