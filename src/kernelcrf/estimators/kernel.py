"""Base class of ChainCRF and KernelClassifier: their common parameters, fit, and tables of weights."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar, TypeVar

import numpy as np
from sklearn.utils.validation import _check_feature_names_in

from kernelcrf.answers.weights import data_frame, top_terms
from kernelcrf.arrays import Array, Floats, UserData
from kernelcrf.estimators.base import Fitted, FittedNames, InputEstimator
from kernelcrf.estimators.parameters import AUTO_INTERCEPT, BOUNDARIES, CLASS_WEIGHT
from kernelcrf.fitting.corpus import Corpus, Groups, Problem
from kernelcrf.fitting.earlier import Earlier
from kernelcrf.fitting.held_out import Comparison, KernelChoice
from kernelcrf.fitting.training import Trained
from kernelcrf.kernels.chain_labels import LabelStructure
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.kernels.labels import LABEL_KERNEL
from kernelcrf.kernels.polynomial import Polynomial
from kernelcrf.kernels.symmetry import Symmetry
from kernelcrf.models.kernel import KernelModel, kernel_parameter
from kernelcrf.readers.inputs import InputsReader
from kernelcrf.readers.labels import LabelReader
from kernelcrf.readers.sequences import SequenceReader
from kernelcrf.rules import AUTO, HeldOut, find_C_rule
from kernelcrf.score.cliques import TOKENS
from kernelcrf.score.terms import BIAS_TERM, START_TERM, Term, chain_terms, named_term
from kernelcrf.validation import COUNT, Parameter, ParameterError, instance_of, shown, shown_list, validated

STRUCTURE = instance_of(LabelStructure, text="a Symmetry or LabelFeatures")
OF_LABELS = Parameter((*LABEL_KERNEL.constraints, STRUCTURE), LABEL_KERNEL.advice)
# kernel="auto" compares gamma with this many times smaller and larger values.
GAMMA_STEP = 4.0

Chained = TypeVar("Chained", bound=KernelModel)


@dataclass(eq=False, repr=False, kw_only=True)
class KernelEstimator(InputEstimator[Chained]):
    """Base class of estimators that are fitted to sequences. Separate rows are treated as sequences of one token."""

    label_kernel: Annotated[Any, OF_LABELS] = "delta"
    class_weight: Annotated[Any, CLASS_WEIGHT] = None
    fit_intercept: Annotated[bool | str, AUTO_INTERCEPT] = "auto"

    _has_edges: ClassVar[bool] = True
    _has_structures: ClassVar[bool] = False

    coef_ = Fitted[Floats]("coef")
    intercept_ = Fitted[Floats]("intercept")
    kernel_ = Fitted[InputKernel | dict[str, InputKernel]]("kernel")
    objective_curve_ = Fitted[Floats]("objective_curve")
    search_ = Fitted[dict[str, list[Any]]]("search")
    n_features_in_ = Fitted[int]("reader.n_features")
    feature_names_in_ = FittedNames("reader.column_names")

    def _kernels(
        self, reader: SequenceReader | InputsReader, by_scale: Callable[[str], float]
    ) -> dict[str, InputKernel]:
        """Return a dict from names of parameters to the kernels that they define for the inputs of `reader`.

        by_scale : a function that computes gamma from the input of a given name, for gamma="scale".
        """
        if isinstance(reader, InputsReader):
            return self._named_kernels(reader, by_scale)
        shape = reader.n_features, reader.is_sparse(TOKENS), partial(by_scale, TOKENS)
        return {"kernel": self._make_kernel("kernel", *shape)}

    def _train_chain(
        self,
        data: Corpus,
        classes: Sequence[UserData],
        make: Callable[[], Mapping[str, InputKernel]],
        earlier: Chained | None,
        more: Callable[[Mapping[str, InputKernel], float], list[Term]] = lambda kernels, C: [],
        prior: Earlier | None = None,
        *,
        dense: Collection[str],
        compare: Callable[[KernelChoice | None], Comparison] = Comparison,
    ) -> Trained:
        """Fit the model to sequences; a warm start uses the kernels of the previous fit and starts from its weights.

        earlier : the model that a warm start starts from, or None.
        classes : the labels, in the order of the columns of scores.
        make : a function that returns a dict from names of parameters to the kernels that they define. It is not called
            for a warm start.
        more : a function that takes the kernels and C, and returns the terms that are added to those of a chain.
        prior : the model that determines the prior of the weights, or None. The fit uses the kernels of this model.
        dense : the names of the inputs that are arrays or data frames.
        compare : a function that takes the kernels to compare, or None, and returns all that the search for C compares.
        """
        start, C = None, self._first_C(earlier)
        kernels = make() if earlier is None else earlier.kernels
        if prior is not None:
            start, kernels = prior.start, {**kernels, **prior.kernels}
        of_dense = [kernels[kernel_parameter(named_term(name)) if self._named_inputs else "kernel"] for name in dense]
        compared = self._compared_kernels(kernels) if earlier is None and prior is None else []
        has_bias, has_ends = self._find_intercept(prior, [*of_dense, *compared[:1]])
        terms = chain_terms(
            len(classes),
            kernels.get("kernel"),
            C=C,
            C_edge=C if self._has_edges else None,
            C_bias=C if has_bias else None,
            C_ends=C if has_ends else None,
            label_kernel=self._label_kernel(classes),
            inputs=self._scored_inputs(kernels, C),
        )
        terms = self._penalise(terms + more(kernels, C))
        groups: Groups = self._groups(terms)
        if prior is not None:
            terms, groups = self._update(terms, groups, prior)
        problem = Problem(terms, data, self._least_counts).only_observed()
        if earlier is not None:
            start = earlier.start_for(problem.terms, data.n_columns)
        choice = None
        if compared:
            names = [term.name for term in terms if term.kernel is compared[1]]
            linear_only = [BIAS_TERM] if self.fit_intercept == AUTO and self._has_edges else []
            choice = KernelChoice(names, compared, linear_only)
        comparison = compare(choice)
        return self._train(problem, groups, start, self._seed(), comparison=comparison)

    def _dense_inputs(self, reader: SequenceReader | InputsReader) -> list[str]:
        """Return the names of the inputs that consist of arrays or data frames."""
        names = self.inputs if isinstance(reader, InputsReader) else [TOKENS]
        return [name for name in names if not reader.is_sparse(name)]

    def _find_intercept(self, prior: Earlier | None, kernels: Collection[InputKernel]) -> tuple[bool, bool]:
        """Return a pair of flags: whether labels have constant scores, and whether first and last labels have scores.

        If fit_intercept="auto" and there is a prior, both flags are as in the prior. For "auto" without a prior, the
        second flag is False. In models without transitions, the first flag is then True if there is a dense input. In
        models with transitions, whose scores contain constant scores, a dense input must also have a linear kernel.

        kernels : the kernels of dense inputs.
        """
        if self.fit_intercept != AUTO:
            return bool(self.fit_intercept), self.fit_intercept == BOUNDARIES
        if prior is None:
            return any(kernel.is_linear or not self._has_edges for kernel in kernels), False
        names = {term.name for term in prior.layout.terms}
        return BIAS_TERM in names, START_TERM in names

    def _compared_kernels(self, kernels: Mapping[str, InputKernel]) -> list[InputKernel]:
        """Return the kernels that the search for C compares, or [] if there is nothing to compare.

        kernels : a dict from names of parameters to the kernels that they define.
        """
        usual = kernels.get("kernel")
        is_auto = isinstance(self.kernel, str) and self.kernel == AUTO
        if not is_auto or usual is None or usual.is_linear or not isinstance(find_C_rule(self.C), HeldOut):
            return []
        factors = (1 / GAMMA_STEP, GAMMA_STEP) if self.gamma == "scale" else ()
        variants = [replace(usual, gamma=float(usual.gamma or 1.0) * factor) for factor in factors]
        return [InputKernel("linear"), usual, *variants]

    def _check_combinations(self) -> None:
        super()._check_combinations()
        if self.penalty is not None and self.penalty.of_coordinates:
            delta = isinstance(self.label_kernel, str) and self.label_kernel == "delta"
            advice = "this penalty needs label_kernel='delta'. Set penalty=None, or another penalty"
            self._exclude("penalty", {"label_kernel": not delta}, advice)
        if isinstance(self.label_kernel, LabelStructure):
            self._check_structure(self.label_kernel)
        if isinstance(self.label_kernel, Symmetry):
            self._check_symmetry(self.label_kernel)

    def _check_structure(self, structure: LabelStructure) -> None:
        """Raise if another parameter cannot be combined with a Symmetry or LabelFeatures."""
        if not self._has_structures:
            raise ParameterError(
                f"label_kernel={structure!r}: expected 'delta', 'centred' or a matrix, because {type(self).__name__} "
                "has no structure of labels; use ChainCRF, or sequences of one token"
            )
        others = {"laplace": bool(self.laplace), "C": self._uses_evidence, "prior": self.prior is not None}
        others["engine"] = getattr(self, "engine", None) is not None
        advice = "this is not available for labels that share weights. Pass the default, or another label_kernel"
        self._exclude("label_kernel", others, advice)

    def _check_symmetry(self, symmetry: Symmetry) -> None:
        """Raise if the inputs cannot be combined with a Symmetry."""
        names = set(self._named_inputs)
        if isinstance(symmetry.columns, Mapping) and not set(symmetry.columns) <= names:
            raise ParameterError(
                f"label_kernel has columns of {shown_list(symmetry.columns)}: expected names of inputs, "
                f"{shown_list(names) if names else 'of which there are none'}; pass the names of `inputs`, or an array"
            )
        if symmetry.columns is not None and names and not isinstance(symmetry.columns, Mapping):
            raise ParameterError(
                f"label_kernel has an array of columns and inputs={shown_list(names)}: expected a dict from names of "
                "inputs to arrays, for the inputs that move"
            )
        kernels = {name: one.kernel for name, one in self._named_inputs.items() if name in (symmetry.columns or ())}
        for name, kernel in (kernels or {"kernel": self.kernel}).items():
            if not isinstance(kernel, str | Polynomial):
                raise ParameterError(
                    f"kernel={shown(kernel)}{'' if name == 'kernel' else f' of the input {shown(name)}'} cannot be "
                    "combined with a Symmetry: expected the name of a kernel, or a Polynomial, which treat all columns "
                    "alike"
                )

    def _label_kernel(self, classes: Sequence[UserData]) -> Any:
        """Return the kernel of labels, given the labels in the order of the columns of scores."""
        given = self.label_kernel
        return given.label_maps(classes) if isinstance(given, LabelStructure) else given

    def _fit_labels(self, tokens: list[UserData], classes: UserData) -> LabelReader:
        """Return a reader of the labels of tokens and of the further labels that `label_kernel` has, if it has some."""
        reader = LabelReader.fit(tokens, classes)
        if not isinstance(self.label_kernel, LabelStructure):
            return reader
        return LabelReader.fit(tokens, self.label_kernel.closure(reader.classes.tolist()))

    @property
    def _least_counts(self) -> Mapping[str, float]:
        """Return a dict from names of terms to numbers: how often a pair must occur in the data to have a weight.

        A pair is a feature and a label, or two labels. Terms in which all pairs have a weight are not in the dict.
        """
        return {}

    def get_feature_names_out(self, input_features: UserData = None) -> Array:
        """Return the names of the rows of `coef_`.

        For the linear kernel, these are the names of the features in feature dicts, the names of the columns of data
        frames, or x0, x1, ... for arrays. For arrays, `input_features` may contain other names. For a kernel with
        landmarks, each row belongs to a combination of landmarks, and the names are "chaincrf0", "chaincrf1", ... If
        inputs have names, such as "words", the names start with `words__`.
        """
        model = self._model
        prefix = type(self).__name__.lower()
        if model.has_landmarks or model.token_inputs[0].prefix:
            names = [
                one.feature_names if one.landmarks is None else [f"{one.prefix}{prefix}{i}" for i in range(one.map.n)]
                for one in model.token_inputs
            ]
            return np.array([name for part in names for name in part], object)
        if not hasattr(self, "feature_names_in_") and model.reader.feature_names is not None:
            return np.array(model.reader.feature_names, object)
        return np.asarray(_check_feature_names_in(self, input_features))

    @validated(n=COUNT)
    def top_features(self, n: int = 10) -> Any:
        """Return the n features with the largest weights for each label, as a pandas.DataFrame, largest first.

        The columns are the label, the feature and the weight. The weight is that of the feature for this label, minus
        the mean of its weights for all labels. Features are sorted by this difference, so large negative weights come
        last. If the kernel has landmarks, the features are landmarks, whose weights may be large and cancel each other;
        models of sequences then have two more columns, the sequence and the token of the landmark.
        """
        model = self._model
        columns = top_terms(model, model.column_labels, n, getattr(model, "term_positions", None))
        return data_frame("top_features", "coef_ and get_feature_names_out()", columns)
