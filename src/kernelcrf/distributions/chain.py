"""The distribution p(y|x) that a ChainCRF predicts for the labels of sequences; `models.chain` has the formula."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernelcrf.answers.certified_labels import CertifiedLabels, ScoreBounds, score_bounds
from kernelcrf.answers.certified_labels import certify as certify_labels
from kernelcrf.answers.expected_costs import least_cost_labels
from kernelcrf.answers.span_probabilities import probable_spans, span_probabilities
from kernelcrf.answers.spans import (
    N_BEST,
    SPAN_SCHEME,
    THRESHOLD,
    PredictedSpan,
    labelled_spans,
    mark_certified,
    predicted_spans,
    read_spans,
)
from kernelcrf.arrays import Array, Floats, Inputs, Labels, UserData
from kernelcrf.basis.sparse_entries import Entries
from kernelcrf.decoding import DecodingRule
from kernelcrf.distributions.sequences import SequenceDistribution
from kernelcrf.models.chain_field import ChainField
from kernelcrf.readers.containers import Ragged
from kernelcrf.readers.spans import scheme_of, span_rules
from kernelcrf.validation import FLAG, validated


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ChainDistribution(SequenceDistribution):
    """The distribution p(y|x) of the labels of sequences, as `ChainCRF.distribution` returns it.

    inputs : the inputs of all tokens, as the model has read them.

    Examples
    --------
    >>> from kernelcrf import ChainCRF
    >>> from kernelcrf.datasets import make_sequences
    >>> data, new = make_sequences(60, random_state=0), make_sequences(60, random_state=1)
    >>> crf = ChainCRF(C=10.0, n_components=100, random_state=0).fit(data.X, data.y)
    >>> distribution = crf.distribution(new.X[:1])  # one forward-backward pass answers all questions
    >>> distribution
    ChainDistribution(n_samples=1)
    >>> distribution.marginals()[0].shape, distribution.edge_marginals()[0].shape
    ((9, 3), (9, 3, 3))
    >>> distribution.log_prob(new.y[:1]).round(1), distribution.entropy().round(1)
    (array([-0.4]), array([1.]))
    >>> [round(log_p, 1) for labels, log_p in distribution.k_best(2)[0]]
    [-0.4, -1.7]
    >>> distribution.sample(5, random_state=0)[0].shape
    (5, 9)
    >>> [(s.start, s.end, s.label, round(s.probability, 2)) for s in distribution.spans()[0]]
    [(0, 2, 2, 0.91), (2, 9, 1, 0.72)]
    >>> distribution.span_marginals([[(0, 2, 2)]])[0].round(2), distribution.span_table(threshold=0.1).shape
    (array([0.91]), (4, 6))
    >>> distribution.decode("marginal")[0], distribution.certify().tokens[0][:3]
    (array([2, 2, 1, 1, 1, 1, 1, 1, 1]), array([ True,  True,  True]))
    >>> low, high = distribution.score_bounds(new.y[:1]).accuracy
    >>> 0 <= low <= high <= 1
    True
    """

    field: ChainField
    inputs: Inputs | Entries

    @property
    def scores_tokens_alone(self) -> bool:
        """Return whether labels of this kind are usually scored one by one, and not as spans or whole labellings."""
        return self.model.scores_tokens_alone

    def cheapest(self, costs: Floats) -> Labels:
        return least_cost_labels(self.field, costs)

    def edge_marginals(self) -> list[Array]:
        """Return one array per sequence: entry [t, i, j] is p(y_{t-1} = i, y_t = j | x), or 0 for the first token."""
        return Ragged.cut(self.field.edge_marginals(), self.chains.offsets)

    @validated(scheme=SPAN_SCHEME, threshold=THRESHOLD, n_best=N_BEST, certify=FLAG)
    def spans(
        self,
        *,
        scheme: str | None = None,
        threshold: float | None = None,
        n_best: int | None = None,
        certify: bool = False,
        rule: str | DecodingRule | None = None,
    ) -> list[list[PredictedSpan]]:
        """Return spans with their probabilities, such as entities or chunks: one list per sequence, from left to right.

        A span has the attributes start, end (the index of the token after the last), label and probability: how
        probable it is that the sequence has exactly this span. By default these are the spans of the labels that
        `decode` returns.

        scheme : the tagging scheme of the labels, such as "IOB2", "IOBES" or "BMES". "lenient" reads tags of all
            schemes as conlleval does, and "runs" makes each run of equal labels a span. None means "lenient" if the
            labels look like tags, and "runs" otherwise.
        threshold : return instead all spans whose probability is at least this number. Below 0.5, spans may overlap.
        n_best : return instead the most probable spans of each sequence, at most this many, sorted by probability and
            not from left to right. They may overlap. If `threshold` is passed too, spans with a smaller
            probability are left out.
        certify : set the attribute `certified` of each span. The fit stops close to the minimum of the objective, not
            exactly at it. `certified` is True if it is proved that a model exactly at the minimum would have this span
            in its likeliest labelling, too (see the method `certify`).
        rule : the decoding rule, as in `decode`. It has no effect if `threshold` or `n_best` is passed.
        """
        classes = self.classes
        scheme = scheme_of(classes.tolist(), scheme)
        rules = span_rules(classes.tolist(), scheme)
        if threshold is None and n_best is None:
            table = labelled_spans(self.field, rules, classes[self.decode_indices(rule)], scheme)
            p = span_probabilities(self.field, rules, table)
        else:
            table, p = probable_spans(self.field, rules, threshold or 0.0, n_best)
        spans = predicted_spans(table, p, rules, self.n_samples)
        return mark_certified(spans, self.certify(), scheme) if certify else spans

    @validated(scheme=SPAN_SCHEME)
    def span_marginals(self, spans: UserData, *, scheme: str | None = None) -> list[Floats]:
        """Return the probabilities of the given spans, one array per sequence.

        spans : for each sequence, a list of tuples (start, end, label), such as (3, 5, "PER").
        scheme : the tagging scheme of the labels, as in the method `spans`.
        """
        classes = self.classes.tolist()
        rules = span_rules(classes, scheme_of(classes, scheme))
        table = read_spans(self.field, rules, spans)
        ends = np.searchsorted(table.sequence, np.arange(self.n_samples + 1))
        return Ragged.cut(span_probabilities(self.field, rules, table), ends)

    @validated(full=FLAG)
    def certify(self, *, full: bool = False) -> CertifiedLabels:
        """Return the likeliest labelling, with flags that are True if that of the optimum provably has the same label.

        The solver stops when the certified gap is small, so that the model is not exactly at the optimum of the
        objective. If the flag of a label is True, a fit with tol=0 and decoding="viterbi" would predict the same label.
        Labels by other rules, such as the likeliest label of each token, which is the default for arrays, are not
        certified. A fit with a smaller `tol` certifies more labels.

        full : whether to compare with the optimum in the whole function space of the kernel, whatever the landmarks;
            this needs a fit with certify_full=True. Otherwise compare with the optimum in the span of the landmarks.
            For the linear kernel both are the same.
        """
        return certify_labels(self.model, self.inputs, self.field, full)

    @validated(full=FLAG)
    def score_bounds(self, y: UserData, *, full: bool = False) -> ScoreBounds:
        """Return bounds on the accuracy and the log-loss of the exactly optimal model, for the true labels y.

        The fitted model is close to the optimum of the objective, but not exactly at it.
        The accuracy is that of the likeliest labelling (decoding="viterbi"). The log-loss is -log p(y|x), summed over
        all sequences and divided by the number of tokens.

        full : as in `certify`.
        """
        return score_bounds(self.model, self.inputs, self.field, self.read_tokens(y), full)
