"""Names of the terms of a chain, and of the kinds of cliques that they score; model files have the same names."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

# Kinds of cliques of sequences: tokens (t,), steps (t - 1, t), the first token and the last token of each sequence.
TOKENS, STEPS, STARTS, ENDS = "tokens", "steps", "starts", "ends"
TOKEN_TERM, TRANSITION_TERM = "node", "edge"
BIAS_TERM, START_TERM, END_TERM = "bias", "start", "end"
CHAIN_CLIQUES = {
    TOKEN_TERM: TOKENS,
    TRANSITION_TERM: STEPS,
    BIAS_TERM: TOKENS,
    START_TERM: STARTS,
    END_TERM: ENDS,
}
# The names of the terms of an input that has a name start with this prefix, as the names of its parameters do.
OF_INPUT, BETWEEN = "inputs__", "__"


def expected_terms(
    stored: Mapping[str, str], inputs: Iterable[str], of_inputs: Container[str]
) -> dict[str, tuple[str, str | None]]:
    """Return the terms that the file of a chain must have, as a dict from names to pairs (kind of cliques, input).

    stored : a dict from the names of the terms in the file to the kinds of cliques that they score.
    inputs : the names of the inputs; empty if there is a single input without a name.
    of_inputs : the kinds of cliques that inputs may score.
    """
    named = {OF_INPUT + name: (stored[OF_INPUT + name], name) for name in inputs}
    tokens = {name: one for name, one in named.items() if one[0] == TOKENS} or {TOKEN_TERM: (TOKENS, TOKENS)}
    constants = [TRANSITION_TERM, *(name for name in (BIAS_TERM, START_TERM, END_TERM) if name in stored)]
    others = {name: one for name, one in named.items() if one[0] in of_inputs and name not in tokens}
    return {**tokens, **{name: (CHAIN_CLIQUES[name], None) for name in constants}, **others}
