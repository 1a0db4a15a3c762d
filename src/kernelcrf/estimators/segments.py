"""SegmentCRF: a semi-Markov conditional random field, as a scikit-learn estimator.

A labelling divides a sequence into segments, each with a label a, a first token b and a last token e - 1. Its
probability is proportional to the exponential of the sum over segments of

    sum_{b <= t < e} f(x_t, a) + f_first(x_b, a) + f_last(x_{e-1}, a) + u(e - b, a) + f_segment(x_b...e, a),

plus the scores T[a', a] of the steps from one segment to the next. The functions f lie in the RKHS of kernels, x_b...e
is an input of the whole segment, and u are scores of durations. `fit` minimises the negative log posterior of all
functions to a certified gap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from kernelcrf.answers.weights import data_frame
from kernelcrf.arrays import Floats, Inputs, UserData, join_columns
from kernelcrf.distributed.cluster import ENGINE, releasing
from kernelcrf.distributed.sources import is_distributed
from kernelcrf.distributions.segments import SegmentDistribution
from kernelcrf.estimators.base import Fitted
from kernelcrf.estimators.input import Input
from kernelcrf.estimators.parameters import OF_STREAMS, OPTIONAL_KERNEL
from kernelcrf.estimators.prior import earlier_of
from kernelcrf.estimators.sequences import SequenceEstimator
from kernelcrf.fitting.segments import LabelledSegments, longest_segment
from kernelcrf.fitting.sequences import LabelledSequences
from kernelcrf.fitting.training_data import TrainingData, read_training_data
from kernelcrf.kernels.durations import DurationKernel
from kernelcrf.kernels.gamma import gamma_by_scale
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.models.segments import SegmentModel
from kernelcrf.readers.base_scores import check_base_scores
from kernelcrf.readers.constraints import legal_labelings
from kernelcrf.readers.pooling import ENDS, POOLING, described, pool
from kernelcrf.readers.segments import SegmentLabels, extend_labels, fit_labels, read_tokens
from kernelcrf.readers.sequences import SequenceReader
from kernelcrf.score.cliques import FIRSTS, LASTS, OF_SINGLE_LABELS, SEGMENTS, TOKENS
from kernelcrf.score.terms import FIRST_TERM, LAST_TERM, SEGMENT_TERM, TOKEN_TERM, Term, named_term, segment_terms
from kernelcrf.streams.segments import SegmentStream
from kernelcrf.validation import FLAG, ParameterError, either, nothing, one_of, validated, whole

SMOOTH, FREE = "smooth", "free"
# The most durations with scores of their own, unless `max_duration` says otherwise.
MOST_DURATIONS = 50
# Smooth scores need the eigenvalues of a matrix with one row per duration.
MOST_SCORED = 10_000


@dataclass(eq=False, repr=False, kw_only=True)
class SegmentCRF(SequenceEstimator[SegmentModel]):
    """Semi-Markov conditional random field, which scores whole segments and their lengths.

    X is a list of sequences, as in ChainCRF. y is a list of label sequences, or of lists of segments (start, end,
    label). A segment has the tokens from `start` to `end` - 1. If the labels are IOB2 tags, such as B-PER, I-PER and O,
    a segment starts at each B, and each run of O is a segment, too. Otherwise, each run of equal labels is a segment.
    Lists of segments become IOB2 tags if they do not cover all tokens, or if two neighbours have the same label.
    Missing labels and sets of labels are as in ChainCRF.

    Parameters
    ----------
    kernel : "auto", str, callable or kernel of sklearn.gaussian_process, default="auto"
        The kernel of the inputs of tokens, as in ChainCRF.
    gamma, inputs : as in ChainCRF
        These parameters of the inputs have the same meaning and the same defaults as in ChainCRF.
    max_duration : int or None, default=None
        The longest duration, in tokens, that has a score of its own, at most 10,000. None means the longest segment of
        y, but at most 50 tokens if `tail` is True.
    durations : "smooth", "free" or None, default="smooth"
        How durations are scored. With "smooth", the score is a smooth function of the duration for each label. "free"
        learns a separate score for each pair of a duration and a label. With None, durations up to `max_duration` have
        no scores.
    tail : bool, default=True
        Whether segments may be longer than `max_duration`. Such a segment has the score of the duration `max_duration`,
        and an additional score for each further token. This score depends on the label alone, so that the distribution
        of durations has a geometric tail.
    ends : bool, default=True
        Whether the first and the last token of a segment have additional scores. These are functions of the inputs of
        these two tokens, besides the function that scores every token.
    segment_kernel : None, str, callable or kernel of sklearn.gaussian_process, default=None
        Kernel of the inputs of whole segments; None means that segments have no inputs. `gamma` and
        `n_components` apply to this kernel, too. All possible segments of up to `max_duration` tokens have
        an input, so that memory and time grow with `max_duration`. The input of a longer segment is that of its first
        `max_duration` tokens.
    pooling : "mean", "max", "ends" or callable, default="mean"
        How the input of a segment is computed from the inputs of its tokens. If there are several `inputs`, their
        columns are first put side by side. "mean" is the mean of each column over the tokens, "max" is the largest
        value of each column, and "ends" joins the inputs of the first and of the last token. A function is called as
        f(x, start, end), where x is a sequence of X. `start` is the index of the first token, and `end` is the index of
        the token after the last one. The function returns a feature dict, a list of feature names, or a vector. Other
        values than "mean" need a `segment_kernel`.
    C, n_components : as in ChainCRF
        These parameters have the same meaning and the same defaults as in ChainCRF.
    label_kernel : "delta", "centred" or (L, L) array, default="delta"
        How similar labels are, as in ChainCRF. It applies to the function that scores every token, and to the
        intercept. The scores of first and last tokens and of whole segments have separate weights for each label.
    fit_intercept : "auto", bool or "boundaries", default="auto"
        Whether to learn a constant score for the label of each token. "auto" does so for the linear kernel on arrays
        and data frames. "boundaries" adds scores of the labels of the first and of the last segment of a sequence.
    constraints : None or pairs, default=None
        All pairs (label, next label) of the labels of neighbouring segments that are allowed. Segmentations that have
        another pair have probability 0.
    laplace : bool, default=False
        Whether to compute the marginal likelihood and the posterior of the weights, which `log_marginal_likelihood`,
        `uncertainty` and `predict_proba(posterior="laplace")` need. The value "diagonal" of ChainCRF is not available.
    decoding : "viterbi", "marginal" or a rule of kernelcrf.decoding, default="viterbi"
        Whether `predict` returns the labels of the likeliest segmentation, or the likeliest label of each token.
        `kernelcrf.decoding.ExpectedCost(costs)` returns the labels of tokens with the smallest expected cost.
    solver : str or a solver such as NewtonCG(), default="auto"
        One of the solvers of ChainCRF, except "dual", or `Restarts`. "auto" is "lbfgs".
    warm_start : bool, default=False
        Start from the kernels, landmarks, labels, weights and longest duration of the previous fit, as in ChainCRF.
    prior : None, a fitted SegmentCRF, or the path of its file, default=None
        An earlier model that this fit updates with new data, without the earlier training data, as in ChainCRF. New
        labels need label_kernel="delta". max_duration=None stands for the value of the earlier model.
    classes, class_weight, weights, hash_features : as in ChainCRF
        These parameters have the same meaning and the same defaults as in ChainCRF. Neighbouring labels are here the
        labels of neighbouring segments.
    penalty, tol, max_iter, certify_full, checkpoint, engine, n_jobs, random_state, verbose : as in ChainCRF
        These parameters have the same meaning and the same defaults as in ChainCRF.

    Attributes
    ----------
    classes_ : labels of tokens, in the order of the columns of probabilities.
    segment_labels_ : (L,) labels of segments. They are `classes_` or, for IOB2 tags, the types such as PER, and "O".
    duration_scores_ : (max_duration, L), the score of each duration, from one token on.
    tail_scores_ : (L,), the score of each further token of a segment that is longer than `max_duration`. It is -inf if
        tail=False.
    coef_ : weights of the inputs of tokens, one column per label of segments.
    segment_coef_ : weights of the inputs of segments, one column per label of segments; None without `segment_kernel`.
    transitions_ : (L, L), scores of transitions between consecutive segments, [from, to].
    intercept_, start_scores_, end_scores_, landmarks_, landmark_positions_, C_, kernel_ : as in ChainCRF
    input_variances_ : as in ChainCRF
    log_marginal_likelihood_error_, certificate_, objective_curve_, gap_curve_, metadata_ : as in ChainCRF
    n_iter_ : the number of iterations of the solver.
    n_features_in_ : number of columns.
    feature_names_in_ : names of the columns, after a fit to data frames.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcrf import Input, SegmentCRF
    >>> rng = np.random.default_rng(0)
    >>> y = [np.repeat([0, 1] * 3, rng.integers(4, 7, 6)) for _ in range(30)]  # segments of 4 to 6 tokens
    >>> X = [labels[:, None] + rng.normal(size=(len(labels), 1)) for labels in y]
    >>> crf = SegmentCRF("linear", C=10.0, ends=False, laplace=True, tol=1e-8).fit(X, y)
    >>> crf.certificate_.status, round(crf.score(X, y), 1)
    ('optimal', 0.9)
    >>> crf.duration_table().round(1).T
         1    2    3    4    5    6
    0 -3.4 -3.6 -3.4  0.6  0.7  0.7
    1 -2.3 -2.5 -2.4  1.3  1.1  0.6
    >>> x = X[:1]
    >>> distribution = crf.distribution(x)
    >>> [(s.start, s.end, s.label, round(s.probability, 1)) for s in distribution.spans()[0]][:3]
    [(0, 6, 0, 0.7), (6, 10, 1, 0.4), (10, 16, 0, 0.4)]
    >>> crf.predict(x)[0][:8], crf.predict_proba(x)[0].shape, distribution.sample(5, random_state=0)[0].shape
    (array([0, 0, 0, 0, 0, 0, 1, 1]), (28, 2), (5, 28))
    >>> {label: round(p, 1) for label, p in crf.predict_marginals(x)[0][0].items()}
    {0: 1.0, 1: 0.0}
    >>> segments = [(0, 6, 0), (6, 10, 1), (10, 16, 0), (16, 20, 1), (20, 24, 0), (24, 28, 1)]
    >>> crf.log_prob(x, [segments]).round(1), distribution.entropy().round(1)
    (array([-1.3]), array([3.3]))
    >>> crf.explain(x[0], 4).label, crf.uncertainty(x, n_samples=20).epistemic[0].shape
    (0, (28,))
    >>> crf.select_for_labelling(X, 3, random_state=0).shape, round(crf.log_marginal_likelihood())
    ((3,), -129)
    >>> crf.get_feature_names_out(), crf.top_features(1).shape, crf.transition_table().shape
    (array(['x0'], dtype=object), (2, 3), (2, 2))
    >>> live = crf.stream()  # tokens arrive one by one
    >>> live.extend(x[0][:9]).newest.labels[6:], live.open_segments()[0].start
    (array([1, 1, 1]), 5)
    >>> crf.save("segments.kcrf")
    >>> several = SegmentCRF(inputs={"first": Input("rbf", columns=[0])})  # each input has its own kernel and C
    >>> several.set_params(inputs__first__C=2.0).get_params()["inputs__first__C"]
    2.0
    """

    max_duration: Annotated[int | None, either(whole(least=1, most=MOST_SCORED), nothing)] = None
    durations: Annotated[str | None, either(one_of(SMOOTH, FREE), nothing)] = SMOOTH
    tail: Annotated[bool, FLAG] = True
    ends: Annotated[bool, FLAG] = True
    segment_kernel: Annotated[Any, OPTIONAL_KERNEL] = None
    pooling: Annotated[Any, POOLING] = "mean"
    engine: Annotated[Any, ENGINE] = None

    _model_type = SegmentModel
    _further_kernels: ClassVar[tuple[str, ...]] = ("segment_kernel",)
    _scored_by_inputs: ClassVar[tuple[str, ...]] = OF_SINGLE_LABELS

    segment_labels_ = Fitted[list[UserData]]("column_labels")
    duration_scores_ = Fitted[Floats]("duration_scores")
    tail_scores_ = Fitted[Floats]("tail_scores")
    segment_coef_ = Fitted[Floats | None]("segment_coef")

    @releasing()
    def fit(
        self,
        X: UserData,
        y: UserData = None,
        sample_weight: UserData = None,
        lengths: UserData = None,
        *,
        groups: UserData = None,
        base_scores: UserData = None,
    ) -> Self:
        """Fit the model to labelled sequences, and return it.

        X : a list of sequences, or, with `lengths`, the tokens of all sequences one after the other.
        y : a list with the labels or the segments of each sequence, or, with `lengths`, one list of all labels.
        sample_weight : one weight per sequence.
        lengths : the number of tokens of each sequence.
        groups : one group per sequence, as in `ChainCRF.fit`.
        base_scores : fixed scores of labels, which are added to those of the model, as in `ChainCRF.fit`.
        """
        self._validate_params()
        if self.engine is not None or is_distributed(X):
            return self._fit_on_cluster(X, y, sample_weight, lengths, {"groups": groups, "base_scores": base_scores})
        earlier, prior = self._find_start(), self._find_prior()
        before = earlier or prior
        read = read_training_data(
            X, y, sample_weight, lengths, hash_features=self.hash_features, classes=self.classes,
            class_weight=self.class_weight, constraints=None, inputs=self._chosen, owner="SegmentCRF",
            learns_names=self._learns_names,
            earlier=None if earlier is None else (earlier.reader, earlier.labels),
            read_tokens=partial(read_tokens, is_tags=None if before is None else before.spec.is_tags),
            fit_labels=fit_labels, extend_labels=extend_labels, base_scores=base_scores, groups=groups,
            prior=None if prior is None else (prior.reader, prior.labels), by_token=False,
        )  # fmt: skip
        flat = read.data
        assert isinstance(flat, LabelledSequences)
        spec = SegmentLabels.of(read.labels.classes)
        if before is not None:
            check_base_scores(before.base, flat.base)
        if prior is not None and not read.n_tokens:
            self.model_ = prior
            return self
        longest = self._longest(partial(longest_segment, flat, spec)) if before is None else before.longest
        legal = None if self.constraints is None else legal_labelings(self.constraints, spec.types)
        pooled, segment_reader = self._pool(X, lengths, flat, longest, before)
        data = LabelledSegments(
            flat.X, flat.chains, flat.labels, flat.n_labels, flat.allowed, flat.weights, legal, flat.base,
            groups=flat.groups, spec=spec, longest=longest, tail=bool(self.tail), pooled=pooled,
        )  # fmt: skip
        data.check()
        by_scale = partial(gamma_by_scale, pooled)
        return self._fit_segments(read, data, spec, earlier, prior, by_scale, segment_reader)

    def _fit_segments(
        self,
        read: TrainingData,
        data: Any,
        spec: SegmentLabels,
        earlier: SegmentModel | None,
        prior: SegmentModel | None,
        by_scale: Callable[[], float],
        segment_reader: SequenceReader | None = None,
    ) -> Self:
        """Fit the model to segments.

        data : `LabelledSegments`, or `DistributedSegments` on a cluster.
        spec : the labels of tokens and of segments.
        earlier, prior : the model of a warm start, and the model that is the prior; None if there is none.
        by_scale : a function that returns gamma="scale" for the inputs of whole segments.
        segment_reader : the reader of the inputs of whole segments, if these inputs are described by a function.
        """
        reader, before = read.reader, earlier or prior

        def kernels() -> dict[str, InputKernel]:
            of_tokens = self._kernels(reader, read.by_scale)
            if self.segment_kernel is None:
                return of_tokens
            n_columns, sparse = data.n_columns(SEGMENTS), data.is_sparse(SEGMENTS)
            segment_kernel = self._make_kernel("segment_kernel", n_columns, sparse, by_scale)
            return {**of_tokens, "segment_kernel": segment_kernel}

        terms = partial(self._segment_terms, spec, data.longest)
        known = None
        if prior is not None:
            positions = np.array([spec.types.index(label) for label in prior.spec.types], np.int32)
            known = earlier_of(prior, positions, len(spec.types), data.n_columns)
        dense = self._dense_inputs(reader)
        trained = self._train_chain(data, spec.types, kernels, earlier, terms, known, dense=dense)
        self.model_ = SegmentModel.of(
            trained, (reader, read.labels, data.legal), self._specification, self._engine,
            {} if before is None else dict(before.metadata), getattr(data, "base", None) or (),
            longest=data.longest, tail=bool(self.tail),
            segment_reader=segment_reader, pooling=None if self.segment_kernel is None else self.pooling,
        )  # fmt: skip
        return self

    def _fit_on_cluster(
        self, X: UserData, y: UserData, sample_weight: UserData, lengths: UserData, others: Mapping[str, UserData]
    ) -> Self:
        from kernelcrf.distributed.corpus import DistributedSequences
        from kernelcrf.distributed.gamma import gamma_by_scale as gamma_of_parts
        from kernelcrf.distributed.segments import DistributedSegments, longest_of_parts, settle_tokens
        from kernelcrf.distributed.sequences import SequencePartReader, read_sequence_parts

        self._refuse_on_cluster(others)
        if self.segment_kernel is not None and not isinstance(self.pooling, str):
            raise ValueError(
                "pooling is a function of whole sequences, which cannot be combined with data on a cluster, because "
                "workers keep arrays only: expected 'mean', 'max' or 'ends'; or pass sequences in this process and "
                "engine=None"
            )
        earlier, prior = self._find_start(), self._find_prior()
        before = earlier or prior
        tokens = read_tokens if before is None else partial(read_tokens, is_tags=before.spec.is_tags)
        parts = SequencePartReader(
            hash_features=self.hash_features, classes=self.classes, class_weight=self.class_weight,
            chosen=self._chosen, learns_names=self._learns_names,
            earlier=None if earlier is None else (earlier.reader, earlier.labels),
            prior=None if prior is None else (prior.reader, prior.labels),
            read_tokens=tokens, fit_labels=fit_labels, extend_labels=extend_labels,
        )  # fmt: skip
        settle = settle_tokens if before is None else None
        read = read_sequence_parts(X, y, sample_weight, lengths, self.engine, parts, self._expected_features, settle)
        spec, tokens_of_parts = SegmentLabels.of(read.labels.classes), read.data
        assert isinstance(tokens_of_parts, DistributedSequences)
        if before is not None:
            check_base_scores(before.base, None)
        if prior is not None and not read.n_tokens:
            self.model_ = prior
            return self
        longest = self._longest(partial(longest_of_parts, tokens_of_parts, spec)) if before is None else before.longest
        legal = None if self.constraints is None else legal_labelings(self.constraints, spec.types)
        pooling = None if self.segment_kernel is None else str(self.pooling)
        data = DistributedSegments.of(tokens_of_parts, spec, longest, bool(self.tail), pooling, legal)
        return self._fit_segments(read, data, spec, earlier, prior, partial(gamma_of_parts, data, [SEGMENTS]))

    def _check_combinations(self) -> None:
        super()._check_combinations()
        advice = "pooling makes inputs of segments, which need a kernel; set segment_kernel, such as 'linear'"
        self._exclude("pooling", {"segment_kernel": self.segment_kernel is None and self.pooling != "mean"}, advice)

    def _check_inputs(self, inputs: Mapping[str, Input]) -> None:
        super()._check_inputs(inputs)
        if SEGMENTS in inputs:
            raise ParameterError(
                f"inputs has the name {SEGMENTS!r}, which is reserved for the inputs of whole segments: choose another "
                f"name for this input. If it should read the entry {SEGMENTS!r} of sequences, pass of={SEGMENTS!r}"
            )

    @property
    def _learns_names(self) -> bool:
        return super()._learns_names and (self.segment_kernel is None or self.pooling != ENDS)

    def _longest(self, find: Callable[[], int]) -> int:
        """Return the number of durations that have scores of their own.

        find : a function that returns the number of tokens of the longest segment of the data.
        """
        if self.max_duration is not None:
            return int(self.max_duration)
        longest = find()
        return min(longest, MOST_DURATIONS) if self.tail else longest

    def _pool(
        self, X: UserData, lengths: UserData, data: LabelledSequences, longest: int, earlier: SegmentModel | None
    ) -> tuple[Inputs, SequenceReader | None]:
        """Return a pair: the inputs of all candidate segments, and their reader; both are None without such inputs."""
        if self.segment_kernel is None:
            return None, None
        if isinstance(self.pooling, str):
            return pool(join_columns(data.X), data.chains, longest, self.pooling), None
        described_segments = described(X, lengths, data.chains, longest, self.pooling)
        if earlier is not None and earlier.segment_reader is not None:
            return earlier.segment_reader.read(described_segments)[0], earlier.segment_reader
        reader, rows, _ = SequenceReader.fit(described_segments)
        return rows, reader

    def _segment_terms(
        self, spec: SegmentLabels, longest: int, kernels: Mapping[str, InputKernel], C: float
    ) -> list[Term]:
        L, inputs = len(spec.types), self._scored_inputs(kernels, C)
        return segment_terms(
            L,
            C,
            durations=None if self.durations is None else DurationKernel(longest, L, self.durations == SMOOTH),
            tail=bool(self.tail),
            ends=kernels.get("kernel") if self.ends else None,
            segment_kernel=kernels.get("segment_kernel"),
            named_ends={name: one for name, one in inputs.items() if one.scores == TOKENS} if self.ends else {},
        )

    @property
    def _least_counts(self) -> Mapping[str, float]:
        of_tokens = [name for name, one in self._named_inputs.items() if one.scores == TOKENS]
        named = [named_term(name, cliques) for name in of_tokens for cliques in ("", FIRSTS, LASTS)]
        return self._least_counts_of([TOKEN_TERM, FIRST_TERM, LAST_TERM, SEGMENT_TERM, *named])

    def distribution(
        self, X: UserData, lengths: UserData = None, *, base_scores: UserData = None
    ) -> SegmentDistribution:
        """Return an object for the distribution p(y|x) of the segmentations of X.

        Its methods share one pass of inference: marginals of tokens, entropies, samples, the k likeliest labellings,
        and segments with their probabilities.

        X : sequences in one of the forms that `predict` accepts. For a Dask collection, the methods of the object give
            lazy collections, and some methods are missing.
        base_scores : scores of the same kind as those passed to `fit`, if any.
        """
        if is_distributed(X):
            parts: SegmentDistribution = self._distribution_of_parts(X, lengths, base_scores)
            return parts
        return self._distribution(self._model, X, lengths, base_scores)

    @validated(**OF_STREAMS)
    def stream(self, *, lag: int = 0, max_delay: int | None = None, state: UserData = None) -> SegmentStream:
        """Return an object that takes the tokens of one sequence as they arrive, and answers after each of them.

        The parameters and the answers are those of `ChainCRF.stream`. The newest segment has the duration that it has
        so far: the answer is that of the model to the tokens so far. The method `open_segments` returns the segments to
        which the newest token may belong, with their starts and probabilities. Models with a `segment_kernel` have no
        streams.
        """
        model = self._model
        if SEGMENT_TERM in model.maps:
            raise ValueError(
                "this SegmentCRF has a segment_kernel, whose scores need whole segments: expected a model without one. "
                "Fit with segment_kernel=None to label streams"
            )
        return SegmentStream(model, self._engine, lag, max_delay, state)

    def _distribution(
        self, model: SegmentModel, X: UserData, lengths: UserData = None, base_scores: UserData = None
    ) -> SegmentDistribution:
        self._validate_params("decoding")
        field = model.field(X, lengths, self._engine, base_scores)
        return SegmentDistribution(rule=self.decoding, model=model, field=field, is_flat=lengths is not None)

    def duration_table(self) -> Any:
        """Return `duration_scores_` as a pandas.DataFrame: one row per number of tokens, one column per label."""
        model = self._model
        scores = model.duration_scores
        index = list(range(1, len(scores) + 1))
        return data_frame("duration_table", "duration_scores_", scores, index=index, columns=model.column_labels)
