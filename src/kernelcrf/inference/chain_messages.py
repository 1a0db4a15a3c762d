"""Compute messages of sequences, and from them log-partitions, entropies, marginals and samples.

Log-partitions, entropies and samples need only the forward messages alpha. Marginals also need the backward messages
beta, which are computed when they are first needed. The module `scaled` has the recursions of both.

The forward messages determine P_t(i|j), the probability of label i at token t-1 given label j at token t. The entropy
of the labels before token t, given label j at token t, is

    H_t(j) = sum_i P_t(i|j) [H_{t-1}(i) - log P_t(i|j)]    with H_1 = 0.

The entropy of a sequence of T tokens is sum_j p_T(j) [H_T(j) - log p_T(j)], where p_T are the marginals of its last
token. Samples are drawn by forward filtering and backward sampling: first the label of the last token, then the label
of each earlier token given the label after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from kernelcrf.arrays import Array, Floats, Labels
from kernelcrf.engines.local import LocalEngine
from kernelcrf.graphs.structure import Chains
from kernelcrf.inference.batch import Batch
from kernelcrf.inference.logspace import LogMessages
from kernelcrf.inference.loops import scaled as loops
from kernelcrf.inference.scaled import ScaledMessages

Task = tuple[ScaledMessages, ...]
Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class ChainMessages:
    """The messages of m sequences with N tokens and L labels.

    log_partition : (m,), one number per sequence.
    tasks : the forward messages of all sequences in scaled space, grouped as the threads process them. They are zero
        for sequences that would underflow.
    in_log_space : the index and the messages in log space of each sequence that would underflow.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcrf.graphs.structure import Chains
    >>> from kernelcrf.inference.chain_messages import ChainMessages
    >>> messages = ChainMessages.of(np.zeros((3, 2)), np.zeros((2, 2)), Chains.from_lengths([2, 1]))
    >>> messages.log_partition.round(2), messages.entropy().round(2)  # four labellings, and two
    (array([1.39, 0.69]), array([1.39, 0.69]))
    >>> messages.nodes[0], messages.edge_marginals()[1].tolist()
    (array([0.5, 0.5]), [[0.25, 0.25], [0.25, 0.25]])
    >>> messages.sample(4, np.random.default_rng(0)).shape
    (4, 3)
    """

    batch: Batch
    log_partition: Floats
    tasks: tuple[Task, ...]
    in_log_space: tuple[tuple[int, LogMessages], ...]
    n_threads: int

    @classmethod
    def of(
        cls, scores: npt.ArrayLike, transitions: npt.ArrayLike, chains: Chains, *, n_threads: int = 1
    ) -> ChainMessages:
        """Compute the forward messages; `inference.chain` explains the arguments."""
        batch = Batch.of(scores, transitions, chains)
        log_partition, tasks, redone = batch.infer(tuple, lambda sample, messages: (sample, messages), n_threads)
        return cls(batch, log_partition, tuple(tasks), tuple(redone), n_threads)

    @property
    def nodes(self) -> Array:
        """Return the node marginals p(y_t = j), (N, L), one row per token."""
        return self._backward[0]

    @cached_property
    def _backward(self) -> tuple[Array, tuple[Task, ...]]:
        """Return the node marginals, and the messages of both directions."""
        nodes = np.empty_like(self.batch.scores)

        def work(task: Task) -> Task:
            # The backward pass works in place, and two threads may ask for the marginals at the same time.
            both = tuple(replace(messages, v=messages.v.copy()) for messages in task)
            for messages in both:
                messages.backward(nodes)
            return both

        tasks = self._map(work, self.tasks)
        for sample, messages in self.in_log_space:
            nodes[self.batch.nodes(sample)] = messages.nodes
        nodes.flags.writeable = False
        return nodes, tuple(tasks)

    def edge_marginals(self) -> Array:
        """Return the edge marginals p(y_{t-1} = i, y_t = j), (N, L, L), which are zero at first tokens."""
        batch, L = self.batch, self.batch.n_labels
        edges = np.empty((batch.chains.n_nodes, L, L), batch.scores.dtype)

        def work(task: Task) -> None:
            for messages in task:
                tokens = edges[messages.block.nodes]
                loops.edge_marginals(messages.edges.e, batch.tied, messages.alpha, messages.v, tokens)

        self._map(work, self._backward[1])
        for sample, messages in self.in_log_space:
            edges[batch.nodes(sample)] = messages.edges
        return edges

    def entropy(self) -> Floats:
        """Return the entropy -sum_y p(y|x) log p(y|x) of each sequence, from forward messages only."""
        result = np.empty(self.batch.chains.n_samples)
        self._map(lambda task: write_entropies(self.batch, task, result), self.tasks)
        for sample, messages in self.in_log_space:
            result[sample] = messages.entropy
        return result

    def sample(self, n_samples: int, rng: np.random.Generator) -> Labels:
        """Draw labellings from p(y|x); return an array (n_samples, N), one row per draw and one column per token."""
        batch, n_nodes = self.batch, self.batch.chains.n_nodes
        uniform = rng.random((n_nodes, n_samples))
        labels = np.empty((n_nodes, n_samples), np.int32)

        def work(task: Task) -> None:
            for messages in task:
                offsets, tokens, e_T = messages.block.offsets, messages.block.nodes, messages.edges.e_T
                loops.sample(offsets, e_T, batch.tied, messages.alpha, messages.failed, uniform[tokens], labels[tokens])

        self._map(work, self.tasks)
        for sample, messages in self.in_log_space:
            tokens = batch.nodes(sample)
            messages.sample(uniform[tokens], labels[tokens])
        return np.ascontiguousarray(labels.T)

    def _map(self, work: Callable[[Task], Result], tasks: tuple[Task, ...]) -> list[Result]:
        """Call `work` on each task, in threads, and return the list of results."""
        if self.batch.is_small:
            return [work(task) for task in tasks]
        costs = [float(sum(len(messages.alpha) for messages in task)) for task in tasks]
        return LocalEngine(self.n_threads).map(work, tasks, costs)


def write_entropies(batch: Batch, blocks: Iterable[ScaledMessages], result: Floats) -> None:
    """Compute the entropy of each sequence in the given blocks, and write it into `result`.

    `result` has one entry per sequence of the batch; entries of sequences in other blocks do not change.
    """
    for messages in blocks:
        block, e, alpha = messages.block, messages.edges.e, messages.alpha
        e_log_e, entropies = e * np.log(e, where=e > 0, out=np.zeros_like(e)), result[block.samples]
        loops.entropy(block.offsets, batch.n_labels, e, e_log_e, batch.tied, alpha, messages.failed, entropies)
