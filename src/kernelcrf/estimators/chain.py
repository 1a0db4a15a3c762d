"""ChainCRF: a conditional random field on sequences, as a scikit-learn estimator.

The probability of the labels y of a sequence with the inputs x is

    p(y|x) = exp(sum_t f(x_t, y_t) + sum_{t>1} T[y_{t-1}, y_t]) / Z(x).

The function f lies in the RKHS of a kernel on inputs times a kernel on labels, T is a matrix of transition scores, and
Z(x) makes the probabilities sum to one. `fit` minimises the negative log posterior of f and T to a certified gap.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Self

from kernelcrf.answers.leave_one_out import predict_left_out
from kernelcrf.arrays import Array, Floats, Labels, UserData
from kernelcrf.decoding import AUTO as AUTO_RULE
from kernelcrf.decoding import MARGINAL, VITERBI, DecodingRule, find_rule, rules_for
from kernelcrf.distributed.cluster import ENGINE, releasing
from kernelcrf.distributed.sources import is_distributed
from kernelcrf.distributions.chain import ChainDistribution
from kernelcrf.estimators.base import Fitted
from kernelcrf.estimators.input import Input
from kernelcrf.estimators.parameters import LAPLACE, OF_STREAMS, STORED_DTYPE
from kernelcrf.estimators.prior import earlier_of
from kernelcrf.estimators.sequences import SequenceEstimator
from kernelcrf.fitting.held_out import Comparison, HeldOutSearch, KernelChoice
from kernelcrf.fitting.leave_one_out import LeaveOneOut
from kernelcrf.fitting.training_data import read_training_data
from kernelcrf.graphs.structure import Legal
from kernelcrf.kernels.chain_labels import LabelStructure
from kernelcrf.models.chain import ChainModel, tokens_count_alone
from kernelcrf.models.crfsuite import read_crfsuite, to_crfsuite
from kernelcrf.models.one_sequence import OneSequence
from kernelcrf.models.wapiti import read_wapiti, to_wapiti
from kernelcrf.persistence import PathLike, wapiti
from kernelcrf.persistence.crfsuite.model_file import OTHER_PROGRAMS, SUFFIX, write_model
from kernelcrf.readers.base_scores import check_base_scores
from kernelcrf.readers.containers import Ragged
from kernelcrf.readers.inputs import InputsReader
from kernelcrf.readers.sequences import SequenceReader
from kernelcrf.rules import HeldOut, find_C_rule
from kernelcrf.score.cliques import OF_INPUTS, STEPS, TOKENS
from kernelcrf.score.terms import TOKEN_TERM, named_term
from kernelcrf.streams.chain import ChainStream
from kernelcrf.streams.compiled_loops import labels_at_lag
from kernelcrf.validation import (
    FLAG,
    PATH,
    POSITIVE,
    shown,
    stacklevel_of_user,
    validated,
)

# A fit warns if held-out sequences have LEAST_IN_SPANS tokens in spans, and predictions less than RARE_SHARE of them.
LEAST_IN_SPANS, RARE_SHARE = 10, 0.1
OUTSIDE_TAG = "O"


@dataclass(eq=False, repr=False, kw_only=True)
class ChainCRF(SequenceEstimator[ChainModel]):
    """Conditional random field on sequences, with kernels.

    X is a list of sequences. A sequence is an array, a sparse matrix or a data frame with one row per token, or a list
    of feature dicts. With several `inputs`, a sequence can also be a dict from names to such arrays or lists. If
    `lengths` is passed, X contains the tokens of all sequences one after the other. y is a list of label sequences.
    None stands for a label that is not known. If all other labels are strings or non-negative integers, -1 means the
    same, except if the only other label is 1. If you know only that a label is one of a few, pass a set of the possible
    labels. If you have probabilities of labels, for example from several annotators, pass them in place of labels: for
    each sequence an array with one row per token and one column per label, or mappings from labels to probabilities.

    Parameters
    ----------
    kernel : "auto", str, Polynomial, callable or kernel of sklearn.gaussian_process, default="auto"
        The kernel says how similar two tokens are. "auto" is "linear" for feature dicts and sparse matrices. For arrays
        and data frames, it compares "linear" and "rbf" while C="auto" is chosen, and takes "linear" unless "rbf" is
        better by more than one standard error, in the log-likelihood or in the number of right labels. If gamma is
        "scale", a quarter of it and four times as much are compared, too. With another C, or with an `Input`, "auto" is
        "rbf" for arrays. "linear" learns a weight for each column. All others, such as "rbf", "poly", "laplacian",
        "cosine" and "chi2", compare each token with a limited number of points, the landmarks, which are chosen from
        the training tokens or near them. `kernelcrf.kernels.Polynomial(degree=2)` is "poly" with another degree than 3.
    gamma : "scale", "auto" or float, default="scale"
        Coefficient of the kernel, as in sklearn.svm.SVC.
    inputs : None or dict from names to kernels or kernelcrf.Input, default=None
        Several inputs, each with its own kernel, landmarks and C, which replace `kernel`, `gamma` and `n_components`. A
        kernel stands for Input(kernel). If each sequence is a dict, an input uses the entry with its own name, or the
        entry named by `Input.of`. Otherwise every input uses the whole sequence. `Input.columns` selects columns.
        {"tokens": "rbf", "steps": Input("rbf", scores="steps")} makes the scores of transitions depend on tokens, too.
    C : float, "auto", "evidence" or a rule of kernelcrf.rules, default="auto"
        The penalty of all weights, including transitions, is |weights|^2 / (2 C): the smaller C is, the smoother is the
        model. In other words, C is the variance of their Gaussian prior. CRFsuite's c2 is 1 / (2 C). "auto" tries
        powers of 10 on about 20,000 tokens. It fits a model to four fifths of them for each C, and keeps the C whose
        model gives the labels of the other fifth the highest probability. For this comparison, the weights of each
        model are divided by the temperature between 3/4 and 4/3 that makes this probability highest, so that right
        labels count more than how sure a model is. With fewer than 50 sequences, "auto" uses five folds with about
        4,000 tokens. With fewer than 20, it keeps the smallest C that is worse than the best one by at most one
        standard error. `kernelcrf.rules.HeldOut(scoring="span_f1")` chooses C by another score. The final fit, to all
        sequences, has no temperature: use TemperatureScaling if you need calibrated probabilities. "evidence" maximises
        the marginal likelihood: the probability of the training labels, averaged over the prior distribution of the
        weights. `kernelcrf.rules.Evidence(optimize_kernel=True)` chooses the hyperparameters of the kernel, too. With
        `inputs`, "auto" and "evidence" choose a separate C for each input, and another one for all other weights, such
        as transitions.
    penalty : None or a penalty of kernelcrf.penalties, default=None
        A penalty that is added to that of `C`, and makes weights zero. `ElasticNet(l1)` is the L1 penalty of all
        weights, as CRFsuite's c1; it needs linear kernels. `GroupLasso(l1)` leaves out features, landmarks or inputs.
    n_components : int, None, "auto" or Landmarks(n, pivots), default=500
        Number of landmarks. None uses every distinct token. "auto" adds landmarks, and stops when it is proved that
        further landmarks would lower the objective by at most the fraction `tol`. `kernelcrf.basis.Landmarks` also says
        by which rule landmarks are chosen, for example Landmarks(500, "greedy").
    label_kernel : "delta", "centred", (L, L) array, Symmetry or LabelFeatures, default="delta"
        How similar labels are. With "delta", each label has its own weights. "centred" removes the mean score of all
        labels, which does not change probabilities. A positive semi-definite matrix of similarities lets similar labels
        learn from each other. `kernelcrf.Symmetry` is for a group that moves inputs and labels together, such as
        transposition of chords. With `kernelcrf.LabelFeatures`, labels share weights through features that they have.
    fit_intercept : "auto", bool or "boundaries", default="auto"
        Whether to learn a constant score for each label. "auto" does so only for the linear kernel on arrays and data
        frames. Feature dicts and sparse matrices get no such scores, as in CRFsuite. Other kernels get none either: the
        transitions contain such scores already, and far from the landmarks, where a kernel such as "rbf" says nothing,
        a constant score would decide alone. "boundaries" adds scores of the first and of the last label of a sequence.
        C is the prior variance of all these scores, too.
    constraints : None, "BIO", "IOB1", "IOB2", "BIOUL", "BILOU", "IOBES", "BIOES", "BMES" or pairs, default=None
        A tagging scheme, or all pairs (label, next label) that are allowed. Labellings that break the scheme, or that
        have another pair, have probability 0.
    classes : None or labels, default=None
        All labels, if some of them may not occur in y, or if -1 is one of them.
    class_weight : None, "balanced" or dict, default=None
        Weights of labels. They apply to whole sequences: the weight of a sequence is the mean of the weights of its
        known labels. Sequences with weight 0 are left out of the fit.
    laplace : bool or "diagonal", default=False
        Whether to compute the marginal likelihood and the posterior of the weights, which `log_marginal_likelihood`,
        `uncertainty` and `predict_proba(posterior="laplace")` need. "diagonal" is faster, with one pass over the data.
        It ignores covariances between weights, and between the tokens of a sequence that share a weight, so the
        marginal likelihood is only a rough approximation. Use it for linear models that you want to pass as `prior`.
    decoding : "auto", "viterbi", "marginal", "f1", or a rule of kernelcrf.decoding, default="auto"
        Whether `predict` returns the likeliest labelling ("viterbi"), the likeliest label of each token ("marginal"),
        or the labels with the highest expected F1 score of spans. "auto" means "marginal" if all inputs are arrays or
        data frames, unless labels are tags of spans such as B-PER or have constraints, and "viterbi" otherwise. For
        "f1" the labels must be tags such as B-PER. A span can then be predicted only if its probability is above a
        threshold, which is computed from all sequences of X together. So pass a whole test set to `predict`, not one
        sequence at a time. If some mistakes cost more than others, `kernelcrf.decoding.ExpectedCost(costs)` returns the
        labels with the smallest expected cost, and `ExpectedSpanCost(missed, false)` the spans.
    weights : "observed", "all", float or two of these values, default="observed"
        Which pairs have a weight. "observed" means the pairs of a feature and a label that occur together in the
        training data, and all transitions from a label to the next. "all" means every pair. A number means the pairs,
        and the transitions, that occur at least that often. Two values set pairs and transitions separately:
        ("observed", "observed") is CRFsuite's default, which leaves out transitions that do not occur. A feature that
        is 0 or False in a dict counts as occurring. A pair without a weight has the score 0, and `laplace` assumes no
        uncertainty about this score. Pairs of features and labels are left out only for the linear kernel on feature
        dicts or sparse matrices with label_kernel="delta".
    hash_features : int or None, default=None
        Number of columns, a power of 2, into which feature dicts are hashed; None keeps a vocabulary.
    solver : str or a solver such as NewtonCG(), default="auto"
        "lbfgs", "dual", "newton-cg", "newton", "block-jacobi" or "subspace". "auto" is "dual" for the linear kernel on
        sparse inputs if all labels are observed, label_kernel is "delta", no input has scores="steps" and the tokens of
        a sequence have the same weight, else "lbfgs".
        `kernelcrf.solvers.Restarts(5)` fits again from other random starting points if labels are missing.
    tol : float, default=1e-4
        The fit stops when the objective is proved to be within this fraction of its minimum.
    max_iter : int or a stopping rule such as MaxSeconds(60), default=1000
        Largest number of iterations; for the solver "dual", of passes over the data. A rule of kernelcrf.solvers can
        limit the time instead. A fit that stops here warns with ConvergenceWarning. Raise `max_iter` then, or accept
        the gap in `certificate_`.
    certify_full : bool, default=False
        Whether to compute `certificate_.gap_full`: how much lower the objective could at most be if every training
        token were a landmark. With n_components="auto" it is always computed.
    warm_start : bool, default=False
        Start from the kernels, landmarks, labels and weights of the previous fit. C, class weights, constraints, the
        intercept, the solver and the data may change between fits. A kernel, gamma, `inputs` or number of landmarks
        that has changed is refused with an error. If gamma is "scale", the value of the first fit is kept.
    prior : None, a fitted ChainCRF, or the path of its file, default=None
        An earlier model that this fit updates with new data, without the earlier training data. The prior means are the
        weights of that model. If that model was fitted with `laplace`, the prior precision of a weight is 1 / C plus
        what the earlier data say about this weight. C="auto" then means the C of the earlier fit, so that the prior is
        the posterior of the earlier model. Otherwise the prior variance is C, and C="auto" chooses it on held-out data
        as usual. If the earlier model has landmarks, it should have been fitted with laplace=True, not "diagonal". New
        features and labels have the mean 0 and the variance C. The kernels, landmarks and labels of the earlier model
        are kept, and up to `n_components` new landmarks are added. kernel="auto" and gamma="scale" stand for the values
        of the earlier model; other values, and `inputs`, must be those of its fit.
    n_jobs : int or None, default=1
        Number of threads; -1 uses all cores. Results do not depend on it, and files do not store it.
    engine : None or kernelcrf.distributed.DaskEngine, default=None
        Cluster on which the fit runs; None uses this process, or, for partitioned Dask data, the current client.
    checkpoint : None, str or kernelcrf.fitting.checkpoints.Checkpoint, default=None
        File or URL to which the fit saves its progress, and from which an interrupted fit of the same problem resumes.
    random_state : int, RandomState or None, default=None
        Seed for the choice of landmarks, for random starting points of the search for a kernel and, if labels are
        missing, for those of the fit.
    verbose : int, default=0
        1 shows the objective and its certified gap while the fit runs.

    Attributes
    ----------
    classes_ : (L,) labels, in the order of the columns of probabilities.
    coef_ : weights, of shape (n_features, L) for the linear kernel. For other kernels the shape is (n_landmarks, L).
        Row i then does not belong to landmark i. The fit turns the n_landmarks similarities of a token into n_landmarks
        linear combinations of these similarities, and row i has the weights of combination i. For the weights of
        landmarks, use `top_features`. The rows of several `inputs` are one after the other.
    transitions_ : (L, L), scores of transitions, [from, to].
    intercept_ : (L,), constant scores of labels.
    start_scores_, end_scores_ : (L,), scores of first and of last labels.
    edge_coef_ : (n_edge_features, L, L), weights of inputs with scores="steps", which score transitions; None if there
        are none.
    landmarks_ : (n_landmarks, n_features), or None for the linear kernel; with `inputs`, a dict of them.
    landmark_positions_ : (n_landmarks, 2), the index of the sequence and of the token of each landmark. If the landmark
        is not itself a training token, these are the indices of the nearest training token. None for the linear kernel.
    C_ : the prior variance of the fit; with `inputs`, that of the weights that belong to no input, such as transitions.
    search_ : the models that the search for C has compared on held-out sequences, as a dict of columns, from which
        pandas.DataFrame makes a table. "score" is the mean log-likelihood per token, or the score of `HeldOut`, and
        "error" is the standard error of the difference between this score and the best score (None with
        `HeldOut(scoring=...)`). "accuracy" is the fraction of right labels, if kernels or scores of labels are
        compared. Without a search, the columns are empty.
    kernel_ : the kernel of the fit; with `inputs`, a dict of kernels.
    input_variances_ : the prior variance of each of several `inputs`, a dict.
    log_marginal_likelihood_error_ : the standard error of `log_marginal_likelihood()`, which is estimated from random
        vectors with more than 5,000 weights, or with more than 1,000 weights if C="evidence" and laplace=False. In all
        other cases nothing is random, and the standard error is 0. This number does not include the error of
        Laplace's approximation.
    certificate_ : `objective`, `lower_bound`, `relative_gap`, `gap_full` and `status` of the fit, such as "optimal" or
        "max_iter". No weights on these landmarks give an objective below `lower_bound`. It is -inf if labels are
        missing.
    n_iter_ : the number of iterations. For the solver "dual", it is the number of evaluations of the objective after
        the start, which may be fewer than its passes over the data.
    objective_curve_ : (n_iter_ + 1,), the objective at the start and after each iteration.
    gap_curve_ : (n_iter_ + 1, 3), the relative gap, the passes over the data and the seconds at the same points.
    metadata_ : a dict of plain values that `save` stores with the model, such as how its features were made.
    n_features_in_ : number of columns.
    feature_names_in_ : names of the columns, after a fit to data frames.

    Examples
    --------
    >>> from kernelcrf import ChainCRF, Input
    >>> from kernelcrf.datasets import make_sequences
    >>> data = make_sequences(60, random_state=0)  # lists of (T_i, 2) arrays and of (T_i,) labels
    >>> crf = ChainCRF(C=10.0, n_components=100, laplace=True, random_state=0).fit(data.X, data.y)
    >>> crf.certificate_.status
    'optimal'
    >>> new = make_sequences(60, random_state=1)
    >>> round(crf.score(new.X, new.y), 1)
    0.9
    >>> x = new.X[:1]  # a list with one sequence
    >>> crf.predict(x)[0][:6]
    array([2, 2, 1, 1, 1, 1])
    >>> crf.predict_proba(x)[0].shape
    (9, 3)

    `distribution` answers all questions about p(y|x):

    >>> distribution = crf.distribution(x)
    >>> [round(log_p, 1) for labels, log_p in distribution.k_best(2)[0]], distribution.entropy().round(1)
    ([-0.4, -1.7], array([1.]))
    >>> [(s.start, s.end, s.label, round(s.probability, 2)) for s in distribution.spans()[0]]
    [(0, 2, 2, 0.91), (2, 9, 1, 0.72)]

    Other answers:

    >>> {label: round(p, 1) for label, p in crf.predict_marginals(x)[0][0].items()}
    {0: 0.0, 1: 0.0, 2: 1.0}
    >>> round(crf.log_prob(data.X, data.y).sum()), round(crf.loo_log_prob(data.X, data.y).log_prob.sum())
    (-64, -84)
    >>> crf.explain(x[0], 4, n_terms=1).label, crf.uncertainty(x, n_samples=20).epistemic[0].shape
    (1, (9,))
    >>> crf.select_for_labelling(new.X, 3, random_state=0).shape, round(crf.log_marginal_likelihood())
    ((3,), -122)
    >>> crf.get_feature_names_out()[:2], crf.top_features(2).columns.tolist(), crf.transition_table().shape
    (array(['chaincrf0', 'chaincrf1'], dtype=object), ['label', 'feature', 'sequence', 'token', 'weight'], (3, 3))
    >>> updated = ChainCRF(prior=crf, random_state=0).fit(new.X, new.y)  # does not read `data` again
    >>> updated.certificate_.status, round(updated.log_prob(data.X, data.y).sum())
    ('optimal', -77)
    >>> live = crf.stream(lag=2)  # tokens arrive one by one; probabilities are final two tokens later
    >>> [live.push(token).lagged.labels.tolist() for token in x[0][:4]]
    [[], [], [2], [2]]
    >>> crf.save("model.kcrf")
    >>> several = ChainCRF(inputs={"a": Input("rbf", columns=[0]), "b": Input("linear", columns=[1])})
    >>> several.set_params(inputs__b__C=2.0).get_params()["inputs__b__C"]
    2.0
    """

    decoding: Annotated[str | DecodingRule, rules_for(ChainDistribution)] = AUTO_RULE
    laplace: Annotated[bool | str, LAPLACE] = False
    engine: Annotated[Any, ENGINE] = None

    _model_type = ChainModel
    _scored_by_inputs: ClassVar[tuple[str, ...]] = OF_INPUTS
    _scores_labels = True
    _has_structures: ClassVar[bool] = True

    edge_coef_ = Fitted[Floats | None]("edge_coef")

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

        X : a list of sequences, or, with `lengths`, the tokens of all sequences one after the other. The description of
            the class says which forms a sequence can have.
        y : a list with the labels of each sequence, or, with `lengths`, one list of all labels. In place of labels, a
            sequence can have an array with the probability of each label, one row per token, in the sorted order of
            `classes_`. A data frame with labels as columns, or a list with a dict {label: probability} per token, names
            the labels. The tokens are then independent, given that the labelling keeps `constraints`.
        sample_weight : one weight per sequence, or a list of arrays with one weight per token. A sequence of weight 0
            does not change the fit, but it must be valid, and its labels are part of `classes_`. If all weights are 0
            and `prior` is set, the result is the model of the prior, unchanged. If the weights of tokens differ, the
            loss is a sum of conditional likelihoods: labels with larger weights count more, given the labels of their
            sequence that have smaller weights. The label of a token with weight 0 is only such a condition.
        lengths : the number of tokens of each sequence.
        groups : one group per sequence, such as a person or a document. The search for C and for the kernel holds out
            all sequences of a group together, because sequences of one group may resemble each other.
        base_scores : scores that are added to those of the model and not learned, for example the logarithms of the
            probabilities of a lexicon, a rule or a neural network. Pass one array per sequence (with `lengths`, one
            array for all tokens). An array has one row per token and one column per label, in the sorted order of
            `classes_`. You can also pass a dict: its entry "tokens" has these scores, and its entry "steps" has scores
            of transitions, as arrays [token, label of the previous token, label of the token]. Pass scores of the same
            kind to `predict` and to the other methods that accept them.

        A fit that stops at `max_iter` warns with ConvergenceWarning.
        """
        self._validate_params()
        earlier, prior = self._find_start(), self._find_prior()
        settings = {name: getattr(self, name) for name in ("hash_features", "classes", "class_weight", "constraints")}
        settings["earlier"] = None if earlier is None else (earlier.reader, earlier.labels)
        settings["prior"] = None if prior is None else (prior.reader, prior.labels)
        if self.engine is None and not is_distributed(X):
            settings |= {"base_scores": base_scores, "groups": groups, "fit_labels": self._fit_labels}
            read = read_training_data(X, y, sample_weight, lengths, inputs=self._chosen, **settings)
        else:
            from kernelcrf.distributed.sequences import SequencePartReader, read_sequence_parts

            structure = self.label_kernel if isinstance(self.label_kernel, LabelStructure) else None
            self._refuse_on_cluster({"groups": groups, "base_scores": base_scores, "label_kernel": structure})
            parts = SequencePartReader(chosen=self._chosen, **settings)
            read = read_sequence_parts(X, y, sample_weight, lengths, self.engine, parts, self._expected_features)
        reader, known = read.reader, None
        base = getattr(read.data, "base", None)
        for before in (earlier, prior):
            if before is not None:
                check_base_scores(before.base, base)
        if prior is not None:
            if not read.n_tokens:
                self.model_ = prior
                return self
            labels = read.labels.positions_of(prior.labels)
            known = earlier_of(prior, labels, len(read.labels.classes), read.data.n_columns)
        make = partial(self._kernels, reader, read.by_scale)
        trained = self._train_chain(
            read.data,
            read.labels.classes.tolist(),
            make,
            earlier,
            prior=known,
            dense=self._dense_inputs(reader),
            compare=partial(self._compare, reader, read.labels.classes, read.legal),
        )
        if trained.held_out is not None:
            _warn_of_rare_spans(trained.held_out, read.labels.classes)
        metadata = next((dict(one.metadata) for one in (earlier, prior) if one is not None), {})
        readers = reader, read.labels, read.legal
        self.model_ = ChainModel.of(trained, readers, self._specification, self._engine, metadata, base or ())
        return self

    def predict(self, X: UserData, lengths: UserData = None, *, base_scores: UserData = None) -> list[Array]:
        if is_distributed(X):
            return super().predict(X, lengths, base_scores=base_scores)
        model = self._model
        # Models that can answer for one sequence have feature dicts, for which "auto" is "viterbi".
        if self.decoding in (VITERBI, AUTO_RULE) and (one := _of_one(model, X, lengths, base_scores)) is not None:
            indices = one.label(X[0])
            if indices is not None:
                return Ragged([model.labels.classes[indices]])
        labels: list[Array] = self._distribution(model, X, lengths, base_scores).decode()
        return labels

    def _marginals(self, model: ChainModel, X: UserData, lengths: UserData, base_scores: UserData) -> list[Array]:
        if (one := _of_one(model, X, lengths, base_scores)) is not None:
            marginals = one.marginals(X[0])
            if marginals is not None:
                return Ragged([marginals])
        return super()._marginals(model, X, lengths, base_scores)

    def distribution(self, X: UserData, lengths: UserData = None, *, base_scores: UserData = None) -> ChainDistribution:
        """Return an object for the distribution p(y|x) of the labels of the sequences X.

        Its methods share one pass of inference: marginals of tokens and of neighbouring tokens, entropies, samples, the
        k likeliest labellings, spans with their probabilities, and labels that provably equal those of the optimum.

        X : sequences in one of the forms that `predict` accepts. For a Dask collection, the methods of the object give
            lazy collections, and some methods are missing.
        base_scores : scores of the same kind as those passed to `fit`, if any.
        """
        if is_distributed(X):
            parts: ChainDistribution = self._distribution_of_parts(X, lengths, base_scores)
            return parts
        return self._distribution(self._model, X, lengths, base_scores)

    @validated(**OF_STREAMS)
    def stream(self, *, lag: int = 0, max_delay: int | None = None, state: UserData = None) -> ChainStream:
        """Return an object that takes the tokens of one sequence as they arrive, and answers after each of them.

        Its methods `push` and `extend` add one token or several. Each answer has three parts. `newest` has p(y_t |
        x_1..x_t) of the newest tokens. This is the answer of the model to the tokens so far, without the scores and
        constraints of last labels, because the sequence goes on. `lagged` has the tokens whose probabilities are final
        because `lag` more tokens have arrived. `decided` has the labels of the likeliest path, as soon as they are
        certain. `finish` ends the sequence: what remains is answered as `predict_proba` and `predict` answer for the
        whole sequence. The labels of `newest` and `lagged` are the likeliest of each token, whatever `decoding` is.

        Memory and time per token do not grow with the number of tokens; time grows with `lag`.

        lag : the number of later tokens that the probabilities of a token wait for.
        max_delay : the number of later tokens after which a label of the likeliest path is decided at the latest. It is
            then the label of the best path so far, and later labels do not break a constraint with it. None means that
            no path is followed.
        state : the result of the method `state` of an earlier stream of this model with the same `lag` and `max_delay`,
            which the new stream continues.
        """
        return ChainStream(self._model, self._engine, lag, max_delay, state)

    def _distribution(
        self, model: ChainModel, X: UserData, lengths: UserData = None, base_scores: UserData = None
    ) -> ChainDistribution:
        self._validate_params("decoding")
        inputs, chains = model.reader.read_entries(X, lengths)
        base = model.read_base(base_scores, chains, flat=lengths is not None)
        return ChainDistribution(
            rule=self.decoding,
            model=model,
            field=model.field_of(inputs, chains, self._engine, base),
            is_flat=lengths is not None,
            inputs=inputs,
        )

    @validated(refit=FLAG, tol=POSITIVE)
    def loo_log_prob(
        self,
        X: UserData,
        y: UserData,
        sample_weight: UserData = None,
        lengths: UserData = None,
        *,
        refit: bool = True,
        tol: float = 0.01,
        base_scores: UserData = None,
    ) -> LeaveOneOut:
        """Return log p(y|x) of each training sequence under weights fitted to all other sequences.

        The sum over all sequences estimates how well the model predicts new sequences, and needs no held-out data. For
        each sequence, one Newton step changes the weights to those without the sequence. If the error of this step may
        exceed `tol`, a fit follows. The features, the landmarks, the kernel and C stay those of the fit to all
        sequences, even if the left-out sequence helped to choose them.

        X, y, sample_weight, lengths, base_scores : the data of the fit; other data are refused.
        refit : whether to fit again without a sequence, starting from the Newton step, if the bound on the error is
            above `tol`.
        tol : the largest error of a log-probability, in nats.
        """
        if is_distributed(X):
            raise ValueError(
                "X is data on a cluster: expected sequences in this process; pass, for example, a part of the data"
            )
        data = X, y, sample_weight, lengths
        options = bool(refit), float(tol), self._engine, base_scores
        return predict_left_out(self._model, *data, self.class_weight, *options)

    @validated(path=PATH, dtype=STORED_DTYPE)
    def save(self, path: PathLike, *, dtype: str | None = None) -> None:
        """Write the fitted model to a file that `kernelcrf.load` reads; the file contains no executable code.

        If the name ends with ".crfsuite", the file is a model of CRFsuite, which python-crfsuite opens too. It has the
        labels, the features and their weights, but not the parameters of the estimator, the certificate and
        `metadata_`. Such a file can only hold a model with string labels and the linear kernel on feature dicts,
        without `inputs`, `constraints`, hashed features and intercepts. For any other model, `save` raises ValueError.

        If the name ends with ".wapiti", the file is a text model of Wapiti. It can hold the same models, and those that
        `from_wapiti` has read. In the file, the features of other models begin with "u:", and transitions are weights
        of the feature "b". Pass both to Wapiti, and to the model that reads the file.

        dtype : "float32" or "float16" rounds the weights to 32 or 16 bits, so that the file is smaller; None keeps them
            as they are. CRFsuite's files have double precision.
        """
        program = OTHER_PROGRAMS.get(os.path.splitext(os.fspath(path))[1])
        if program is None:
            super().save(path, dtype=dtype)
        elif dtype in ("float16", "float32"):
            raise ValueError(f"dtype={dtype!r}: expected None for a file of {program}, which has double precision")
        else:
            if find_rule(self.decoding).name not in (VITERBI, AUTO_RULE):
                warnings.warn(
                    f"a file of {program} does not store decoding={shown(self.decoding)}: programs that open it "
                    "predict the likeliest labelling. Use a .kcrf file to keep the rule",
                    UserWarning,
                    stacklevel=stacklevel_of_user(),
                )
            if program == OTHER_PROGRAMS[SUFFIX]:
                write_model(to_crfsuite(self._model), path)
            else:
                wapiti.write_model(to_wapiti(self._model), path)

    @classmethod
    def from_crfsuite(cls, source: PathLike | bytes) -> Self:
        """Return the ChainCRF in a model file of CRFsuite.

        `source` is the path of the file or its content as bytes. `kernelcrf.load` reads such files too.
        """
        crf = cls("linear")
        crf.model_ = replace(read_crfsuite(source), specification=crf._specification)
        return crf

    @classmethod
    def from_wapiti(cls, source: PathLike | bytes) -> Self:
        """Return the ChainCRF in a text model file of Wapiti.

        `source` is the path of the file or its content as bytes. `kernelcrf.load` reads such files too. A token of the
        model is a list of features, as in Wapiti without patterns: names that begin with u, b or *. The patterns of
        the file are kept for `save`, but not applied to text.
        """
        crf = cls(inputs={TOKENS: Input("linear"), STEPS: Input("linear", scores=STEPS)})
        crf.model_ = replace(read_wapiti(source), specification=crf._specification)
        return crf

    @property
    def _least_counts(self) -> Mapping[str, float]:
        of_inputs = [named_term(name) for name, one in self._named_inputs.items() if one.scores == TOKENS]
        return self._least_counts_of(of_inputs or [TOKEN_TERM])

    def _compare(
        self,
        reader: SequenceReader | InputsReader,
        classes: Array,
        legal: Legal | None,
        choice: KernelChoice | None,
    ) -> Comparison:
        """Return what the search for C compares on held-out sequences: kernels, and the metric of `HeldOut`, if any.

        choice : the kernels to compare, or None.
        """
        rule, metric = find_C_rule(self.C), None
        if isinstance(rule, HeldOut) and rule.scoring is not None:
            from kernelcrf.metrics.scorers import label_metric

            of_labels = label_metric(rule.scoring)

            def metric(true: Sequence[Labels], predicted: Sequence[Labels]) -> float:
                return float(of_labels(*([classes[indices] for indices in labels] for labels in (true, predicted))))

        decode = None
        if isinstance(rule, HeldOut) and rule.lag is not None:
            decode = partial(labels_at_lag, lag=rule.lag)
        decoding = find_rule(self.decoding).name
        by_token = decoding == MARGINAL or (decoding == AUTO_RULE and tokens_count_alone(reader, classes, legal))
        return Comparison(choice, metric, counts=_are_tags(classes), by_token=by_token, decode=decode)


def _of_one(model: ChainModel, X: UserData, lengths: UserData, base_scores: UserData) -> OneSequence | None:
    """Return an object that predicts a single sequence fast; None if the model or the arguments do not allow this."""
    is_one = type(X) is list and len(X) == 1 and lengths is None and base_scores is None
    return model.one_sequence if is_one else None


def _are_tags(classes: Array) -> bool:
    """Return whether labels are tags of spans, such as B-PER, besides O for tokens outside of spans."""
    names = classes.tolist()
    return OUTSIDE_TAG in names and all(
        isinstance(one, str) and (one == OUTSIDE_TAG or one[1:2] == "-") for one in names
    )


def _warn_of_rare_spans(search: HeldOutSearch, classes: Array) -> None:
    """Warn if the model that a search has chosen predicts almost no spans, although held-out sequences have spans."""
    if search.n_true is None or search.n_predicted is None:
        return
    inside = classes != OUTSIDE_TAG
    n_true, n_predicted = int(search.n_true[inside].sum()), int(search.n_predicted[inside].sum())
    if n_true >= LEAST_IN_SPANS and n_predicted < RARE_SHARE * n_true:
        warnings.warn(
            f"the model predicts almost no spans: of the tokens of held-out sequences, {n_predicted} are predicted to "
            f"be in spans, and {n_true} really are. Set decoding='f1', which predicts more spans, pass "
            "C=kernelcrf.rules.HeldOut(scoring='span_f1'), or give sequences with spans more weight by class_weight",
            UserWarning,
            stacklevel=stacklevel_of_user(),
        )
