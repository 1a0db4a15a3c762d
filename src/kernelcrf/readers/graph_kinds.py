"""Name the kinds of cliques of graphs; all cliques of a kind share their potential (equations 25 to 27 of the paper).

Without types, all nodes are of one kind, and so are all edges. With types, each type of nodes and each type of edges is
a kind of its own. Users may also name cliques of any number of nodes; each name is a kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias

from kernelcrf.arrays import Array, Config, Ints
from kernelcrf.persistence import ModelFileError
from kernelcrf.score.cliques import EDGE_INPUTS, EDGES, NODES, PATHS, SKIPS
from kernelcrf.validation import shown, shown_list

Type: TypeAlias = str | int

RESERVED = (NODES, EDGES, EDGE_INPUTS, SKIPS, PATHS)
"""Names that users cannot give to their own cliques."""
MOST_SCORES = 2**25
"""The largest number of joint labels of a clique that a user has named."""


@dataclass(frozen=True)
class GraphKinds:
    """The types of nodes and edges, and the names of the user's cliques.

    node_types, edge_types : the distinct types, integers before strings; None if nodes or edges have no types.
    named : a dict from the names of the user's cliques to the number of nodes per clique.

    The properties `nodes`, `edges` and `edge_inputs` are dicts with types as keys. Without types, the only key is None.
    """

    node_types: tuple[Type, ...] | None = None
    edge_types: tuple[Type, ...] | None = None
    named: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, node_types: Array | None, edge_types: Array | None, cliques: Mapping[str, Ints]) -> Self:
        """Return the kinds of graphs, given the type of each node and of each edge, and the user's cliques by name."""
        named = {name: int(cliques[name].shape[1]) for name in sorted(cliques)}
        return cls(_different(node_types), _different(edge_types), named)

    @property
    def nodes(self) -> dict[Type | None, str]:
        """Return a dict from types of nodes to kinds of cliques; without types of nodes, the only key is None."""
        return _kinds(NODES, self.node_types)

    @property
    def edges(self) -> dict[Type | None, str]:
        """Return a dict from types of edges to kinds of cliques; without types of edges, the only key is None."""
        return _kinds(EDGES, self.edge_types)

    @property
    def edge_inputs(self) -> dict[Type | None, str]:
        """Return a dict from types of edges to the name of the term that reads the inputs of these edges."""
        return _kinds(EDGE_INPUTS, self.edge_types)

    @property
    def cliques(self) -> dict[str, str]:
        """Return a dict from the names that the user has given to cliques to the kinds of these cliques."""
        return {name: f"cliques {name!r}" for name in self.named}

    @property
    def has_ties(self) -> bool:
        """Return whether there are types or named cliques."""
        return self != GraphKinds()

    def public_names(self, kinds: Iterable[str]) -> tuple[str, ...]:
        """Return the distinct names that users see for the given kinds of cliques; leave out the kinds of nodes.

        Users see "edges" for all kinds of edges, and the names that they have given to their own cliques.
        """
        names = dict.fromkeys(self.edges.values(), EDGES) | {kind: name for name, kind in self.cliques.items()}
        nodes = set(self.nodes.values())
        return tuple(dict.fromkeys(names.get(kind, kind) for kind in kinds if kind not in nodes))

    def check_sizes(self, L: int) -> None:
        """Raise if a clique that the user has named has too many joint labels, given L labels per node."""
        for name, k in self.named.items():
            # The power itself may be too long to compute.
            if k * (L.bit_length() - 1) > MOST_SCORES.bit_length() or L**k > MOST_SCORES:
                raise ValueError(
                    f"the cliques {shown(name)} of X have {k} nodes each, with {L} labels: expected at most "
                    f"{MOST_SCORES} joint labels per clique; use smaller cliques"
                )

    def sizes(self, L: int) -> dict[str, int]:
        """Return a dict from kinds of cliques to the number of joint labels of one clique, given L labels per node."""
        pairs = [*self.edges.values(), EDGE_INPUTS, SKIPS]
        named = {self.cliques[name]: L**k for name, k in self.named.items()}
        return dict.fromkeys(self.nodes.values(), L) | dict.fromkeys(pairs, L**2) | {PATHS: L**3} | named

    def check_known(self, other: GraphKinds, n_nodes: int, n_edges: int) -> None:
        """Raise if graphs with the kinds `other` do not fit a model with these kinds.

        n_nodes, n_edges : the number of nodes and of edges of the graphs; graphs without edges need no types of edges.
        """
        if n_nodes:
            _check_types("node", self.node_types, other.node_types)
        if n_edges:
            _check_types("edge", self.edge_types, other.edge_types)
        new = [name for name in other.named if name not in self.named]
        if new:
            known = f"expected names among {shown_list(self.named)}" if self.named else "expected no cliques"
            raise ValueError(
                f"X has cliques named {shown_list(new)}, which the training graphs do not have: {known}. Remove these "
                "cliques from X, or fit the model to graphs that have them"
            )
        for name, k in other.named.items():
            if k != self.named[name]:
                raise ValueError(
                    f"the cliques {shown(name)} of X have {k} nodes each: expected {self.named[name]}, as in training"
                )

    def to_config(self) -> Config:
        """Return the kinds as values that JSON can store."""
        lists = {"node_types": self.node_types, "edge_types": self.edge_types}
        config = {name: None if types is None else list(types) for name, types in lists.items()}
        return config | {"named": dict(self.named)}

    @classmethod
    def from_config(cls, config: Config | None, L: int) -> Self:
        """Return the kinds that a model file stores; None means graphs without types and without named cliques.

        L : the number of labels per node.
        """
        if config is None:
            return cls()
        named = config["named"]
        if not isinstance(named, dict) or not all(type(k) is int and 2 <= k <= MOST_SCORES for k in named.values()):
            raise ModelFileError(
                f"the model file has the cliques {shown(named)}: expected a number of nodes, 2 or more, for each "
                "name. The file may be damaged: use another copy of it"
            )
        kinds = cls(_read_types(config, "node_types"), _read_types(config, "edge_types"), named)
        kinds.check_sizes(L)
        return kinds


def _kinds(kind: str, types: tuple[Type, ...] | None) -> dict[Type | None, str]:
    return {None: kind} if types is None else {type_: f"{kind} {type_!r}" for type_ in types}


def _different(types: Array | None) -> tuple[Type, ...] | None:
    """Return the distinct types, integers before strings, or None if there are no types."""
    return None if types is None else tuple(sorted(set(types.tolist()), key=lambda one: (isinstance(one, str), one)))


def _check_types(what: str, known: tuple[Type, ...] | None, given: tuple[Type, ...] | None) -> None:
    if known is None and given is not None:
        raise ValueError(
            f"X has {what} types, but the model was fitted without {what} types: pass graphs without {what} types"
        )
    if given is None and known is not None:
        raise ValueError(
            f"X has no {what} types, but the model was fitted with the {what} types {shown_list(known)}: pass graphs "
            f"with {what} types"
        )
    new = [one for one in given or () if one not in (known or ())]
    if new:
        raise ValueError(
            f"X has the {what} types {shown_list(new)}, which the training graphs do not have: expected types among "
            f"{shown_list(known or ())}; fit the model to graphs that have these types"
        )


def _read_types(config: Config, name: str) -> tuple[Type, ...] | None:
    types: Any = config[name]
    if types is None:
        return None
    if not isinstance(types, list) or not types or not all(type(type_) in (str, int) for type_ in types):
        raise ModelFileError(
            f"the model file has {name}={shown(types)}: expected a list of strings and integers, or null. The file "
            "may be damaged: use another copy of it"
        )
    if len(set(types)) < len(types):
        raise ModelFileError(
            f"the model file has {name}={shown(types)}: expected no duplicates. The file may be damaged: use another "
            "copy of it"
        )
    return tuple(types)
