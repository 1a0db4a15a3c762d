"""Base class of ChainCRF and KernelClassifier: their common parameters, fit, and tables of weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, TypeVar

import numpy as np
from sklearn.utils.validation import _check_feature_names_in

from kernelcrf.answers.weights import data_frame, top_terms
from kernelcrf.arrays import Array, Floats, UserData
from kernelcrf.estimators.base import Fitted, FittedNames, InputEstimator
from kernelcrf.estimators.parameters import CLASS_WEIGHT
from kernelcrf.fitting.corpus import Corpus, Groups, Problem
from kernelcrf.fitting.earlier import Earlier
from kernelcrf.fitting.training import Trained
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.kernels.labels import LABEL_KERNEL
from kernelcrf.models.kernel import KernelModel
from kernelcrf.readers.inputs import InputsReader
from kernelcrf.readers.sequences import SequenceReader
from kernelcrf.score.cliques import TOKENS
from kernelcrf.score.terms import Term, chain_terms
from kernelcrf.validation import COUNT, FLAG, validated

Chained = TypeVar("Chained", bound=KernelModel)


@dataclass(eq=False, repr=False, kw_only=True)
class KernelEstimator(InputEstimator[Chained]):
    """Base class of estimators that are fitted to sequences. Separate rows are treated as sequences of one token."""

    label_kernel: Annotated[Any, LABEL_KERNEL] = "delta"
    class_weight: Annotated[Any, CLASS_WEIGHT] = None
    fit_intercept: Annotated[bool | str, FLAG] = False

    _has_edges: ClassVar[bool] = True

    coef_ = Fitted[Floats]("coef")
    intercept_ = Fitted[Floats]("intercept")
    kernel_ = Fitted[InputKernel | dict[str, InputKernel]]("kernel")
    objective_curve_ = Fitted[Floats]("objective_curve")
    n_features_in_ = Fitted[int]("reader.n_features")
    feature_names_in_ = FittedNames("reader.column_names")

    def _kernels(
        self, reader: SequenceReader | InputsReader, by_scale: Callable[[str], float]
    ) -> dict[str, InputKernel]:
        """Return the kernels that the parameters define for the inputs of a reader, by names of parameters.

        by_scale : a function that computes gamma from the input of a given name, for gamma="scale".
        """
        if isinstance(reader, InputsReader):
            return self._named_kernels(reader, by_scale)
        shape = reader.n_features, reader.is_sparse(TOKENS), partial(by_scale, TOKENS)
        return {"kernel": self._make_kernel("kernel", *shape)}

    def _train_chain(
        self,
        data: Corpus,
        n_labels: int,
        make: Callable[[], Mapping[str, InputKernel]],
        earlier: Chained | None,
        more: Callable[[Mapping[str, InputKernel], float], list[Term]] = lambda kernels, C: [],
        prior: Earlier | None = None,
    ) -> Trained:
        """Fit the model to sequences; a warm start uses the kernels of the previous fit and starts from its weights.

        earlier : the model that a warm start starts from, or None.
        make : a function that returns the kernel of each parameter that sets a kernel, for a fit without a warm start.
        more : a function of these kernels and of C, which returns terms besides those of a chain.
        prior : the model that determines the prior of the weights, whose kernels are used, or None.
        """
        start, C = None, self._first_C(earlier)
        kernels = make() if earlier is None else earlier.kernels
        if prior is not None:
            start, kernels = prior.start, {**kernels, **prior.kernels}
        terms = chain_terms(
            n_labels,
            kernels.get("kernel"),
            C=C,
            C_edge=C if self._has_edges else None,
            C_bias=C if self.fit_intercept else None,
            C_ends=C if isinstance(self.fit_intercept, str) else None,
            label_kernel=self._label_kernel(n_labels),
            inputs=self._scored_inputs(kernels, C),
        )
        terms = self._penalise(terms + more(kernels, C))
        groups: Groups = self._groups(terms)
        if prior is not None:
            terms, groups = self._update(terms, groups, prior)
        problem = Problem(terms, data, self._least_counts).only_observed()
        if earlier is not None:
            start = earlier.start_for(problem.terms, data.n_columns)
        return self._train(problem, groups, start, self._seed())

    def _check_combinations(self) -> None:
        super()._check_combinations()
        if self.penalty is not None and self.penalty.of_coordinates:
            delta = isinstance(self.label_kernel, str) and self.label_kernel == "delta"
            advice = "this penalty needs label_kernel='delta'. Set penalty=None, or another penalty"
            self._exclude("penalty", {"label_kernel": not delta}, advice)

    def _label_kernel(self, n_labels: int) -> Any:
        """Return the kernel of labels, given the number of labels."""
        return self.label_kernel

    @property
    def _least_counts(self) -> Mapping[str, float]:
        """Return a dict from the name of a term to the number of times that a pair must occur to get a weight.

        Terms in which all pairs have a weight are not in the dict.
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
        own = type(self).__name__.lower()
        if model.has_landmarks or model.token_inputs[0].prefix:
            names = [
                one.feature_names if one.landmarks is None else [f"{one.prefix}{own}{i}" for i in range(one.map.n)]
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
