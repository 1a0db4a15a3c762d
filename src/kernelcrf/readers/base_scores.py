"""Read base scores: given scores that are added to the learned scores of a model. The paper calls them log p0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from kernelcrf.arrays import Array, Flags, Floats, UserData
from kernelcrf.graphs.structure import Chains, OpenChain
from kernelcrf.persistence import ModelFileError
from kernelcrf.score.cliques import NODES, STEPS, TOKENS
from kernelcrf.validation import shown, shown_list

NAMES = (TOKENS, STEPS, NODES)


def read_base_scores(
    base_scores: UserData, chains: Chains | OpenChain, n_labels: int, *, flat: bool = False
) -> dict[str, Floats] | None:
    """Return base scores as a dict from "tokens" or "steps" to arrays with one row per token; None if there are none.

    base_scores : for each sequence, an array with one row per token and one column per label. A dict may have such
        arrays under the key "tokens", and scores of steps under the key "steps": for each sequence, an array with the
        axes [token, label of the previous token, label of the token]. The first token of a sequence has no previous
        token, so its scores of steps are ignored.
    flat : whether one array has the tokens of all sequences, in place of one array per sequence.
    """
    if base_scores is None:
        return None
    given = base_scores if isinstance(base_scores, Mapping) else {TOKENS: base_scores}
    if not given or not set(given) <= {TOKENS, STEPS}:
        raise ValueError(
            f"base_scores has the keys {shown_list(given)}: expected the keys {TOKENS!r}, {STEPS!r}, or both; or "
            "pass the scores of tokens without a dict"
        )
    shapes = {TOKENS: (n_labels,), STEPS: (n_labels, n_labels)}
    rows = {name: _stack(name, scores, chains, shapes[name], flat) for name, scores in given.items()}
    if STEPS in rows:
        rows[STEPS][chains.first_nodes] = 0.0
    return rows


def read_row_scores(base_scores: UserData, n_rows: int, n_labels: int) -> dict[str, Floats] | None:
    """Return the base scores of independent rows as a dict {"tokens": array}, or None if there are none."""
    chains = Chains.from_lengths(np.ones(n_rows, np.int64))
    base = read_base_scores(base_scores, chains, n_labels, flat=True)
    if base is not None and set(base) != {TOKENS}:
        raise ValueError(
            "base_scores has scores of steps, but independent rows have no steps: expected one array, with one row per "
            "row of X and one column per class"
        )
    return base


def read_node_scores(
    base_scores: UserData, chains: Chains, n_labels: int, kept: Flags | None = None
) -> dict[str, Floats] | None:
    """Return the base scores of the nodes of graphs as a dict {"nodes": array}, or None if there are none.

    base_scores : for each graph, an array with one row per node and one column per label.
    chains : the number of nodes of each graph that is used.
    kept : for each graph of `base_scores`, whether the graph is used; None if all graphs are used.
    """
    if base_scores is None:
        return None
    parts = list(base_scores)
    if kept is not None and len(parts) == len(kept):
        parts = [part for part, keep in zip(parts, kept, strict=True) if keep]
    return {NODES: _stack(NODES, parts, chains, (n_labels,), flat=False)}


def check_base_scores(names: Sequence[str], base: Mapping[str, Array] | None) -> None:
    """Raise unless the kinds of base scores in `base` are `names`, the kinds with which the model was fitted."""
    if base is None and not names:
        return
    given = [] if base is None else sorted(base)
    if given != sorted(names):
        had = f"with base scores of {' and '.join(sorted(names))}" if names else "without base scores"
        raise ValueError(
            f"base_scores has scores of {' and '.join(given) or 'nothing'}, but the model was fitted {had}: pass "
            "base scores of the same kinds as in fit, because the weights were fitted together with them"
        )


def read_base_names(names: UserData) -> tuple[str, ...]:
    """Return the kinds of base scores that a model file names, such as "tokens"; raise if a kind is not known."""
    if not isinstance(names, list) or any(names.count(name) != (name in names) or name not in NAMES for name in names):
        raise ModelFileError(
            f"the model file has base_scores={shown(names)}: expected some of {list(NAMES)}. The file may be damaged: "
            "use another copy of it"
        )
    return tuple(sorted(names))


def _stack(name: str, scores: UserData, chains: Chains | OpenChain, shape: tuple[int, ...], flat: bool) -> Floats:
    """Check base scores, and stack them to one array with one row per token or node.

    name : the kind of the scores: "tokens", "steps" or "nodes".
    shape : the shape of the scores of one token or node; each row of the result has them as one vector.
    """
    words = f"one row per {name[:-1]} and one column per label"
    if name == STEPS:
        words = "the axes [token, label before, label]"
    argument, noun = (f"base_scores[{name!r}]", "sequence") if name != NODES else ("base_scores", "graph")
    parts = [scores] if flat else list(scores)
    lengths = [chains.n_nodes] if flat else chains.lengths.tolist()
    if len(parts) != len(lengths):
        raise ValueError(f"{argument} has {len(parts)} {noun}s: expected {len(lengths)}, the same number as in X")
    stacked = np.zeros((chains.n_nodes, *shape))
    low = 0
    for i, (part, length) in enumerate(zip(parts, lengths, strict=True)):
        try:
            array = np.asarray(part, np.float64)
        except (TypeError, ValueError):
            raise TypeError(f"{argument} of {noun} {i} is {shown(part)}: expected numbers, with {words}") from None
        if array.shape != (length, *shape):
            raise ValueError(
                f"{argument} of {noun} {i} has shape {array.shape}: expected {(length, *shape)}, with {words}"
            )
        if not np.isfinite(array).all():
            raise ValueError(
                f"{argument} of {noun} {i} has values that are not finite: expected finite numbers; to forbid "
                "labels, use constraints="
            )
        stacked[low : low + length] = array
        low += length
    return stacked.reshape(chains.n_nodes, -1)
