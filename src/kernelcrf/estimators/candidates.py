"""CandidateCRF: a conditional random field on sequences whose tokens have candidates of their own.

The probability of candidates c is proportional to exp(sum_t f(x_t, c_t) + sum_{t>1} g(x_t, c_{t-1}, c_t)).
The function f lies in the RKHS of a kernel on features of candidates, and g in that of a kernel on features of pairs.
`fit` minimises the negative log posterior of both to a certified gap.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from kernelcrf.arrays import Array, Floats, NamedInputs, UserData
from kernelcrf.basis.landmarks import Landmarks
from kernelcrf.decoding import VITERBI, DecodingRule, rules_for
from kernelcrf.distributions.candidates import CandidateDistribution
from kernelcrf.estimators.base import Fitted, FittedNames, InputEstimator
from kernelcrf.fitting.candidates import LabelledCandidates
from kernelcrf.fitting.corpus import Problem
from kernelcrf.kernels.candidates import Candidates
from kernelcrf.kernels.gamma import gamma_by_scale
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.models.candidates import CandidateModel, candidate_term
from kernelcrf.models.kernel import kernel_parameter
from kernelcrf.readers.candidates import CandidateData, CandidateReader
from kernelcrf.readers.containers import read_groups, read_list
from kernelcrf.readers.weights import read_weights, score_weights
from kernelcrf.rules import PRIOR_VARIANCE_OR_RULE, VarianceRule
from kernelcrf.score.cliques import STEPS, TOKENS
from kernelcrf.score.terms import Term
from kernelcrf.validation import ParameterError, shown


@dataclass(eq=False, repr=False, kw_only=True)
class CandidateCRF(InputEstimator[CandidateModel]):
    """Conditional random field on sequences in which each token has its own list of candidates, with features.

    Use it if the possible labels differ from token to token: roads near a position, words of a lexicon that look like a
    written word, entries of a database that a name may mean. There are no labels with weights of their own. All
    candidates share one function of their features, and all steps share one function of the features of a pair of
    candidates.

    X is a list of sequences. A sequence is a list with the candidates of each token: an array, a sparse matrix or a
    data frame with one row per candidate, or a list of feature dicts. With several `inputs`, a sequence is a dict from
    names to such lists. y has, for each sequence, the number of the right candidate of each token, counted from 0. None
    or -1 means that it is not known.

    Parameters
    ----------
    kernel : "auto", str, Polynomial, callable or kernel of sklearn.gaussian_process, default="auto"
        The kernel of the features of two candidates. "auto" is "linear" for feature dicts and sparse matrices, and
        "rbf" for arrays and data frames.
    gamma, n_components, penalty, solver, tol, max_iter, certify_full, checkpoint : as in ChainCRF
        With candidates in place of tokens, these parameters have the same meaning and the same defaults as in ChainCRF.
    inputs : None or dict from names to kernels or kernelcrf.Input, default=None
        Several inputs, each with its own kernel, landmarks and C, as in ChainCRF. Input(kernel, scores="steps") is for
        features of pairs: for each token but the first, an array with the axes [candidate of the token before,
        candidate of the token, feature]. `columns` of an Input is not available.
    C : float, "auto", "evidence" or a rule of kernelcrf.rules, default="auto"
        Prior variance of the weights, as in ChainCRF.
    laplace : bool, default=False
        Whether to compute the marginal likelihood, which `log_marginal_likelihood` returns.
    decoding : "viterbi", "marginal" or a rule of kernelcrf.decoding, default="viterbi"
        Whether `predict` returns the likeliest candidates of a sequence together, or of each token.
    warm_start : bool, default=False
        Start from the kernels, landmarks and weights of the previous fit, as in ChainCRF.
    prior : None, default=None
        An earlier model as a prior is not available.
    n_jobs, random_state, verbose : as in ChainCRF
        These parameters have the same meaning and the same defaults as in ChainCRF.

    Attributes
    ----------
    coef_ : (n_features,), weights of the features of candidates, or of combinations of landmarks, as in ChainCRF. The
        weights of several `inputs` are one after the other.
    step_coef_ : weights of the features of pairs of candidates; None if no input scores steps.
    landmarks_, C_, input_variances_, certificate_, n_iter_ : as in ChainCRF
    kernel_, objective_curve_, search_, log_marginal_likelihood_error_ : as in ChainCRF
    n_features_in_ : number of features of a candidate, of all inputs.
    feature_names_in_ : names of the columns, after a fit to data frames.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcrf import CandidateCRF, Input
    >>> rng = np.random.default_rng(0)
    >>> roads = [[rng.random((rng.integers(2, 5), 2)) for _ in range(6)] for _ in range(30)]  # distance, angle
    >>> right = [[int(one.sum(axis=1).argmin()) for one in x] for x in roads]  # the road that is near and parallel
    >>> crf = CandidateCRF("linear", C=10.0).fit(roads, right)
    >>> crf.certificate_.status, round(crf.score(roads, right), 1), (crf.coef_ < 0).tolist()
    ('optimal', 1.0, [True, True])
    >>> crf.predict(roads[:1])[0].tolist() == right[0], crf.predict_proba(roads[:1])[0][0].shape
    (True, (4,))
    >>> crf.distribution(roads[:1]).entropy().shape, crf.log_prob(roads, right).shape
    ((1,), (30,))
    >>> crf.save("roads.kcrf")
    >>> crf = crf.set_params(laplace=True).fit(roads, right)
    >>> crf.get_params()["laplace"], bool(crf.log_marginal_likelihood() < 0)
    (True, True)

    Features of pairs of candidates score the steps, here whether the candidates have the same number:

    >>> def pairs(x):
    ...     return [np.equal.outer(np.arange(len(a)), np.arange(len(b)))[:, :, None] * 1.0 for a, b in zip(x, x[1:])]
    >>> X = [{"near": x, "same": pairs(x)} for x in roads]
    >>> crf = CandidateCRF(inputs={"near": "linear", "same": Input("linear", scores="steps")}, C=10.0).fit(X, right)
    >>> crf.step_coef_.shape
    (1,)
    """

    C: Annotated[float | str | VarianceRule, PRIOR_VARIANCE_OR_RULE] = "auto"
    decoding: Annotated[str | DecodingRule, rules_for(CandidateDistribution)] = VITERBI

    _model_type = CandidateModel
    _scored_by_inputs: ClassVar[tuple[str, ...]] = (TOKENS, STEPS)

    coef_ = Fitted[Floats]("shared_weights")
    step_coef_ = Fitted[Floats | None]("step_weights")
    kernel_ = Fitted[InputKernel | dict[str, InputKernel]]("kernel")
    objective_curve_ = Fitted[Floats]("objective_curve")
    search_ = Fitted[dict[str, list[Any]]]("search")
    n_features_in_ = Fitted[int]("reader.n_features")
    feature_names_in_ = FittedNames("reader.column_names")

    def fit(self, X: UserData, y: UserData, sample_weight: UserData = None, *, groups: UserData = None) -> Self:
        """Fit the model to sequences of candidates, and return it.

        X : a list of sequences; the description of the class says which forms they can have.
        y : for each sequence, the number of the right candidate of each token; None if it is not known.
        sample_weight : one weight per sequence. A sequence of weight 0 has no influence.
        groups : one group per sequence, as in `ChainCRF.fit`.
        """
        self._validate_params()
        earlier = self._find_start()
        X = read_list(X, "X")
        weights = read_weights(sample_weight, len(X), "sequence")
        if earlier is None:
            reader, data = CandidateReader.fit(X, self._scores, self._entries, weights)
        else:
            reader, data = earlier.reader.extend(X, weights)
        labels = reader.read_labels(y, data)
        if not data.chains.n_nodes or (labels < 0).all():
            raise ValueError("y has no known candidate: expected at least one token with a number in y")
        corpus = _corpus(data, labels, weights, groups).only_weighted()

        @cache
        def by_scale(name: str) -> float:
            return gamma_by_scale(corpus.rows(name), names=reader.names_of(name))

        kernels = self._kernels(reader, by_scale) if earlier is None else earlier.kernels
        problem = Problem(self._terms(reader, kernels, data.most, self._first_C(earlier)), corpus)
        start = None if earlier is None else earlier.start_for(problem.terms, corpus.n_columns)
        trained = self._train(problem, self._groups(problem.terms), start, self._seed())
        self.model_ = CandidateModel.of(trained, reader, data.most, self._specification)
        return self

    @property
    def _scores(self) -> dict[str, str]:
        """Return what each input scores, by its name."""
        return {name: one.scores for name, one in self._named_inputs.items()} or {TOKENS: TOKENS}

    @property
    def _entries(self) -> dict[str, str] | None:
        """Return the entry that each input reads, or None if there is one input without a name."""
        return {name: one.of or name for name, one in self._named_inputs.items()} or None

    def _kernels(self, reader: CandidateReader, by_scale: Any) -> dict[str, InputKernel]:
        if self.inputs is not None:
            return self._named_kernels(reader, by_scale)  # type: ignore[arg-type]
        shape = reader.width(TOKENS), reader.is_sparse(TOKENS)
        return {"kernel": self._make_kernel("kernel", *shape, lambda: by_scale(TOKENS))}

    def _terms(self, reader: CandidateReader, kernels: Any, most: int, C: float) -> list[Term]:
        """Return the terms of the score, one per input."""
        scored, terms = self._scored_inputs(kernels, C), []
        for name, kind in self._scores.items():
            term = candidate_term(name, reader)
            k_y = Candidates(most**2 if kind == STEPS else most)
            kernel = kernels[kernel_parameter(term)]
            terms.append(Term(term, kind, k_y, scored[name].C if scored else C, kernel, name))
        return self._penalise(terms)

    def _check_combinations(self) -> None:
        super()._check_combinations()
        if self.prior is not None:
            raise ParameterError(f"prior={shown(self.prior)}: expected None, because CandidateCRF cannot use a prior")
        of_inputs = {f"inputs__{name}__n_components": one.n_components for name, one in self._named_inputs.items()}
        for name, given in {"n_components": self.n_components, **of_inputs}.items():
            if isinstance(given, Landmarks) and given.features == "recomputed":
                raise ParameterError(
                    f"{name}={shown(given)}: expected features='auto' or 'stored', because CandidateCRF stores features"
                )
        for name, one in self._named_inputs.items():
            if one.columns is not None:
                raise ParameterError(
                    f"inputs__{name}__columns={shown(one.columns)}: expected None, because candidates are not cut into "
                    "columns; pass an entry with these columns, and its name as `of`"
                )

    def distribution(self, X: UserData) -> CandidateDistribution:
        """Return an object for the distribution of the candidates of the sequences X.

        Its methods share one pass of inference: marginals, entropies, samples, and the k likeliest choices.
        """
        self._validate_params("decoding")
        model = self._model
        data = model.reader.read(X)
        field = model.field(data, self._engine)
        return CandidateDistribution(rule=self.decoding, model=model, field=field, is_flat=False, data=data)

    def predict(self, X: UserData) -> list[Array]:
        """Return the number of the predicted candidate of each token, one array per sequence."""
        labels: list[Array] = self.distribution(X).decode()
        return labels

    def predict_proba(self, X: UserData) -> list[list[Array]]:
        """Return one list per sequence, with one array per token: the probability of each of its candidates."""
        return self.distribution(X).marginals()

    def log_prob(self, X: UserData, y: UserData) -> Floats:
        """Return the log-probability of the candidates y of each sequence, or of those that are known."""
        return self.distribution(X).log_prob(y)

    def score(self, X: UserData, y: UserData, sample_weight: UserData = None) -> float:
        """Return the fraction of tokens whose right candidate is predicted; tokens without a known one do not count.

        sample_weight : one weight per sequence.
        """
        distribution = self.distribution(X)
        labels = distribution.model.reader.read_labels(y, distribution.data)
        known = labels >= 0
        weights = score_weights(sample_weight, distribution.chains, known, "sequence", None)
        right = distribution.decode_indices() == labels
        return float(np.average(right[known], weights=weights))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.sparse = tags.input_tags.dict = True
        return tags


def _corpus(data: CandidateData, labels: Array, weights: Floats | None, groups: UserData) -> LabelledCandidates:
    """Return labelled sequences for a fit."""
    present, known = data.present, labels >= 0
    allowed = None
    if not known.all():
        allowed = present.copy()
        allowed[known] = np.eye(data.most, dtype=bool)[labels[known]]
    corpus = LabelledCandidates(
        NamedInputs(data.inputs),
        data.chains,
        labels,
        data.most,
        allowed,
        weights,
        base={TOKENS: np.where(present, 0.0, -np.inf)},
    )
    return corpus if groups is None else replace(corpus, groups=read_groups(groups, data.chains.n_samples))
