"""A batch of sequences with their scores, split into tasks for threads and into blocks that fit in a CPU cache.

Each thread processes one task at a time, block by block. Tasks and blocks consist of whole consecutive sequences. Their
sizes depend only on the batch, so that sums do not depend on the number of threads. Each thread needs working memory
for one block, which has about `BLOCK_VALUES` numbers per array, or more if a single sequence is longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from kernelcrf.arrays import Array, Floats
from kernelcrf.engines.bounds import all_within
from kernelcrf.engines.local import LocalEngine
from kernelcrf.graphs.structure import Chains
from kernelcrf.inference.feasibility import reason
from kernelcrf.inference.logspace import LogMessages
from kernelcrf.inference.scaled import Block, Edges, ScaledMessages, padded_width

Result = TypeVar("Result")
Redone = TypeVar("Redone")

BLOCK_VALUES = 2**16
MOST_BLOCK_NODES = 2**14
MOST_TASKS = 256
# A batch with at most so many scores and labels is a single block.
SMALL_BATCH, FEW_LABELS = 2**12, 2**6
LARGEST = float(np.finfo(np.float64).max)


@dataclass(frozen=True)
class Batch:
    """The scores of m sequences with N tokens and L labels, stored one after the other.

    The scores and the transitions have the same dtype, float32 or float64.

    scores : (N, L), one row per token and one column per label.
    transitions : (L, L), indexed [from, to] and used for all tokens, or (N, L, L), one such matrix per token.
    chains : says which rows belong to which sequence.
    weights : (m,), the weight of each sequence in sums of edge marginals. None gives every sequence the weight 1.
    """

    scores: Array
    transitions: Array
    chains: Chains
    weights: Floats | None = None

    @classmethod
    def of(cls, scores: npt.ArrayLike, transitions: npt.ArrayLike, chains: Chains) -> Batch:
        """Check the arguments and return a batch, in float32 if `scores` is float32 and in float64 otherwise."""
        scores = np.asarray(scores)
        dtype = np.float32 if scores.dtype == np.float32 else np.float64
        scores = np.ascontiguousarray(scores, dtype=dtype)
        transitions = np.ascontiguousarray(transitions, dtype=dtype)
        if scores.ndim != 2 or scores.shape[1] == 0:
            raise ValueError(
                f"scores has shape {scores.shape}: expected (N, L), one row per token and one column per label, L >= 1"
            )
        n_nodes, n_labels = scores.shape
        if n_nodes != chains.n_nodes:
            raise ValueError(
                f"scores has {n_nodes} rows but the chains have {chains.n_nodes} tokens: "
                "pass one row for each token, sequence after sequence"
            )
        if transitions.shape not in ((n_labels, n_labels), (n_nodes, n_labels, n_labels)):
            raise ValueError(
                f"transitions has shape {transitions.shape}: expected ({n_labels}, {n_labels}), indexed "
                f"[from, to], or ({n_nodes}, {n_labels}, {n_labels}), one such matrix per token"
            )
        batch = cls(scores, transitions, chains)
        batch._check_values()
        return batch

    def _check_values(self) -> None:
        """Raise if a score or a transition is NaN or +inf.

        Transitions into the first token of a sequence are never used and therefore not checked.
        """
        if not all_within(self.scores, -np.inf, LARGEST):
            node, label = np.argwhere(~(self.scores < np.inf))[0]
            raise ValueError(
                f"scores[{node}, {label}] is {self.scores[node, label]} ({self.chains.place(node)}): "
                "expected a finite number, or -inf to forbid the label"
            )
        if not all_within(self.transitions, -np.inf, LARGEST):
            bad = np.argwhere(~(self.transitions < np.inf))
            if not self.tied:
                bad = bad[~np.isin(bad[:, 0], self.chains.first_nodes)]
            if len(bad):
                place = tuple(bad[0].tolist())
                raise ValueError(
                    f"transitions{list(place)} is {self.transitions[place]}: "
                    "expected a finite number, or -inf to forbid the transition"
                )

    @property
    def n_labels(self) -> int:
        """Return the number of labels."""
        return int(self.scores.shape[1])

    @property
    def tied(self) -> bool:
        """Return whether all tokens share one matrix of transitions."""
        return self.transitions.ndim == 2

    @property
    def is_small(self) -> bool:
        """Return whether the batch is so small, such as one sentence, that threads would not make inference faster.

        BLAS also uses only one thread for matrix products of this size.
        """
        return self.chains.n_nodes * self.n_labels <= SMALL_BATCH and self.n_labels <= FEW_LABELS

    def nodes(self, sample: int) -> slice:
        """Return the slice of the rows of `scores` that belong to one sequence."""
        return slice(*self.chains.offsets[sample : sample + 2])

    def weight(self, sample: int) -> float:
        """Return the weight of one sequence."""
        return 1.0 if self.weights is None else float(self.weights[sample])

    def sequence(self, sample: int) -> tuple[Array, Array]:
        """Return the scores of one sequence, one row per token, and its transitions."""
        nodes = self.nodes(sample)
        return self.scores[nodes], self.transitions if self.tied else self.transitions[nodes]

    def map_tasks(self, function: Callable[[Iterator[Block]], Result], n_threads: int) -> list[Result]:
        """Call `function` once per task, in up to `n_threads` threads; return the results in the order of the tasks.

        A task is a group of consecutive sequences. `function` gets an iterator over the blocks of the task, which are
        smaller groups of its sequences.
        """
        width = padded_width(self.n_labels)
        values = width if self.tied else width * width
        block_nodes = min(max(BLOCK_VALUES // values, 1), MOST_BLOCK_NODES)
        task_nodes = max(block_nodes, -(-self.chains.n_nodes // MOST_TASKS))
        tasks = list(self.chains.runs(task_nodes))
        tied_edges = Edges.of(self.transitions) if self.tied else None
        offsets = self.chains.offsets

        def blocks(task: tuple[int, int]) -> Iterator[Block]:
            for low, high in self.chains.runs(block_nodes, *task):
                nodes = slice(int(offsets[low]), int(offsets[high]))
                transitions = self.transitions if self.tied else self.transitions[nodes]
                local = offsets[low : high + 1] - offsets[low]
                weights = None if self.weights is None else self.weights[low:high]
                yield Block(slice(low, high), nodes, local, self.scores[nodes], transitions, tied_edges, weights)

        if self.is_small:
            return [function(blocks(task)) for task in tasks]
        costs = [float(offsets[high] - offsets[low]) for low, high in tasks]
        return LocalEngine(n_threads).map(lambda task: function(blocks(task)), tasks, costs)

    def infer(
        self,
        work: Callable[[Iterator[ScaledMessages]], Result],
        redo: Callable[[int, LogMessages], Redone],
        n_threads: int,
    ) -> tuple[Floats, list[Result], list[Redone]]:
        """Run inference on all sequences; return the log-partitions, the results of `work` and the results of `redo`.

        Inference first runs with messages that are scaled to sum to one. `work` is called once per task, with an
        iterator over the forward messages of the task's blocks. Sequences whose numbers would underflow are then
        computed with logarithms, and `redo` is called with the index and the messages of each of these sequences.
        Raise InfeasibleSequenceError if all labelings of a sequence are forbidden.
        """
        log_partition, failed = np.empty(self.chains.n_samples), np.zeros(self.chains.n_samples, dtype=bool)

        def in_scaled_space(blocks: Iterator[Block]) -> Result:
            return work(ScaledMessages.of(block, log_partition, failed) for block in blocks)

        def in_log_space(sample: int) -> Redone:
            scores, transitions = self.sequence(sample)
            messages = LogMessages.of(scores.astype(np.float64), transitions.astype(np.float64))
            if not np.isfinite(messages.log_partition):
                raise reason(sample, scores, transitions)
            log_partition[sample] = messages.log_partition
            return redo(sample, messages)

        results = self.map_tasks(in_scaled_space, n_threads)
        samples = np.flatnonzero(failed).tolist()
        return log_partition, results, LocalEngine(n_threads).map(in_log_space, samples) if samples else []
