"""Random problems of GraphCRF and their twins."""

import itertools
from functools import cached_property

import numpy as np

from certificates.network_problem import NetworkProblem
from certificates.twins import Sample, Term, Twin
from kernelcrf import GraphCRF

GRAPHS = ("sequences", "trees", "rings", "alike", "any")
CLIQUES = (("edges",), (), ("edges", "skips"), ("edges", "paths"), ("edges", "skips", "paths"), "auto")


class GraphProblem(NetworkProblem):
    """Graphs of a few nodes."""

    estimator = GraphCRF

    def draw(self):
        pick = self.dice.pick
        self.graph = pick("graph", *GRAPHS, share=0.8)
        self.inference = pick("inference", "exact", "gibbs", "loopy", share=0.35)
        self.cliques = pick("cliques", *CLIQUES)
        self.directed = pick("directed", False, True, share=0.3)
        self.with_edge_features = pick("edge_features", False, True, share=0.3)
        super().draw()
        self.L = self.dice.count("L", 2, 3)
        self.classes = list(range(self.L))
        self._mend()
        self.m = self.dice.count("graphs", 2, 5)
        self.edges = self._edges()
        self.offsets = np.concatenate(([0], np.cumsum(self.sizes)))
        self.nodes = self.inputs(int(self.offsets[-1]), "inputs")
        rng = self.dice.stream("labels")
        self.truth = np.digitize(self.nodes.sum(axis=1) + rng.normal(size=len(self.nodes)), [0.0, 1.0][: self.L - 1])
        self.truth[: self.L] = range(self.L)
        self.hidden = np.zeros(len(self.truth), bool)
        if self.missing:
            self.hidden[self.L :] = rng.random(len(self.truth) - self.L) < 0.3
            self.missing = "some" if self.hidden.any() else None
        self.draw_weights(self.m, self.truth.tolist())

    def _mend(self):
        if self.graph == "sequences":
            self.directed = self.dice.replace("directed", True)
            self.with_edge_features = self.dice.replace("edge_features", False)
        if self.stays_odd:
            return
        if "edges" not in self.wanted:
            self.edge_kernel = self.dice.replace("edge_kernel", None)
        if self.inference != "exact":
            self.laplace = self.dice.replace("laplace", False)
        if self.inference == "gibbs":
            self.missing = self.dice.replace("missing", None)
        if self.inference == "loopy" and ("paths" in self.cliques or self.cliques == "auto"):
            self.cliques = self.dice.replace("cliques", ("edges",))

    @property
    def refusal(self):
        """Return a word of the error that this problem has to end with, or None."""
        if self.edge_kernel is not None and "edges" not in self.wanted:
            return "edge_kernel="
        if self.inference == "loopy" and "paths" in self.wanted:
            return "loopy"
        if self.inference != "exact" and self.laplace:
            return "laplace=True"
        if self.inference == "gibbs" and self.missing:
            return "gibbs"
        return None

    @property
    def wanted(self):
        return ("edges", "skips", "paths") if self.cliques == "auto" else self.cliques

    def _edges(self):
        """Return the edges of each graph, numbered within it; sets the sizes."""
        rng, largest = self.dice.stream("edges"), 7 if self.L == 2 else 5
        sizes = rng.integers(2, largest + 1, size=self.m)
        if self.graph in ("rings", "alike"):
            sizes = np.maximum(sizes, 3)
        if self.graph == "alike":
            sizes[:] = sizes[0]
        self.sizes = sizes
        found = []
        for i, n in enumerate(sizes.tolist()):
            chain = [(v, v + 1) for v in range(n - 1)]
            if self.graph == "sequences":
                edges = chain
            elif self.graph == "rings":
                edges = [*chain, (n - 1, 0)]
            else:
                edges = [(int(rng.integers(v)), v) for v in range(1, n)]
                if self.graph in ("any", "alike"):
                    more = [pair for pair in itertools.combinations(range(n), 2) if pair not in edges]
                    edges += [pair for pair in more if rng.random() < 0.25]
                if self.graph == "alike" and i:
                    edges = found[0]
                elif self.graph != "alike":
                    edges = [pair if rng.random() < 0.5 else pair[::-1] for pair in edges]
            found.append(edges)
        return found

    def _numbered(self, per_graph, arity):
        """Return cliques of single graphs as cliques of all nodes, with the graph of each."""
        rows = [(i, *(v + self.offsets[i] for v in clique)) for i, own in enumerate(per_graph) for clique in own]
        return np.array(rows, int).reshape(-1, arity + 1)

    @cached_property
    def paths(self):
        """Return paths of three nodes: along directed edges, or once for two ends and a middle."""
        found = []
        for n, edges in zip(self.sizes.tolist(), self.edges, strict=True):
            steps = set(edges) if self.directed else {*edges, *(pair[::-1] for pair in edges)}
            triples = itertools.permutations(range(n), 3)
            own = [(a, v, b) for a, v, b in triples if (a, v) in steps and (v, b) in steps]
            found.append(own if self.directed else [path for path in own if path[0] < path[2]])
        return self._numbered(found, 3)

    @property
    def skips(self):
        """Return the ends of paths that are not joined themselves, each pair once."""
        joined = {frozenset(pair) for pair in self._numbered(self.edges, 2)[:, 1:].tolist()}
        rows = {(i, a, b) for i, a, _, b in self.paths.tolist() if frozenset((a, b)) not in joined}
        return np.array(sorted(rows), int).reshape(-1, 3)

    @cached_property
    def edge_rows(self):
        """Return what an edge kernel sees of each edge."""
        pairs = self._numbered(self.edges, 2)[:, 1:]
        if self.with_edge_features:
            return self.dice.stream("edge features").normal(size=(len(pairs), 2)).astype(self.dtype).astype(float)
        first, second = (self.nodes[pairs[:, k]].astype(self.dtype) for k in (0, 1))
        sides = (first, second) if self.directed else (first + second, np.abs(first - second))
        return np.hstack(sides).astype(float)

    @property
    def X(self):
        """Return graphs as a user hands them in."""
        given, low = [], 0
        for i, edges in enumerate(self.edges):
            own = self.matrix(self.nodes[self.offsets[i] : self.offsets[i + 1]])
            if self.graph == "sequences":
                given.append(own)
            elif self.with_edge_features:
                given.append((own, np.array(edges), self.edge_rows[low : low + len(edges)].astype(self.dtype)))
            else:
                given.append((own, np.array(edges)))
            low += len(edges)
        return given

    @property
    def y(self):
        labels = np.where(self.hidden, -1, self.truth)
        return [labels[low:high].tolist() for low, high in itertools.pairwise(self.offsets)]

    @property
    def parameters(self):
        return super().parameters | {
            "cliques": self.cliques,
            "directed": self.directed,
            "inference": self.inference,
        }

    def _templates(self, model):
        """Return the cliques of the templates that the model has, and the label kernel of each."""
        L = self.L
        pair, path = np.eye(L * L), np.eye(L**3)
        if not self.directed:
            swapped = np.arange(L * L).reshape(L, L).T.ravel()
            pair = (pair + pair[swapped]) / 2
            turned = np.arange(L**3).reshape(L, L, L).transpose(2, 1, 0).ravel()
            path = (path + path[turned]) / 2
        nodes = np.column_stack((np.repeat(np.arange(self.m), self.sizes), np.arange(len(self.nodes))))
        edges = self._numbered(self.edges, 2)
        found = {"nodes": (nodes, np.eye(L)), "edges": (edges, pair), "edge inputs": (edges, pair)}
        found |= {"skips": (self.skips, pair), "paths": (self.paths, path)}
        return {name: own for name, own in found.items() if name == "nodes" or name in model.cliques_}

    def twin(self, model, *, exact):
        """Return the dense twin in the span of the model's landmarks; of the pseudo-likelihood for "gibbs"."""
        templates = self._templates(model)
        terms, members = {}, {}
        for name, (cliques, k_y) in templates.items():
            if name != "edge inputs":
                terms[f"{name} constant"] = Term(np.ones((len(cliques), 1)), k_y, self.C_label)
                members[f"{name} constant"] = cliques
            if name == "nodes":
                terms[name] = Term(self.features(self.kernel, self.nodes, model, name), k_y, self.C)
                members[name] = cliques
            if name == ("edge inputs" if self.cliques == "auto" else "edges") and self.edge_kernel is not None:
                A = self.features(self.edge_kernel, self.edge_rows, model, "edge inputs")
                terms["edge inputs"], members["edge inputs"] = Term(A, k_y, self.C), cliques
        samples = []
        for i, weight in enumerate(self.sequence_weights):
            nodes = slice(self.offsets[i], self.offsets[i + 1])
            own, hidden = self.truth[nodes], self.hidden[nodes]
            every = np.array(list(itertools.product(range(self.L), repeat=len(own))), int)
            agree = (every == own) | hidden
            if self.inference != "gibbs":
                samples.append(self._sample(i, every, agree.all(axis=1), members, weight))
                continue
            for v in range(len(own)):
                alike = np.delete(agree, v, axis=1).all(axis=1)
                samples.append(self._sample(i, every[alike], agree[alike].all(axis=1), members, weight))
        return Twin(terms, samples)

    def _sample(self, i, labellings, allowed, members, weight):
        cliques = {}
        for name, rows in members.items():
            own = np.flatnonzero(rows[:, 0] == i)
            nodes = rows[own, 1:] - self.offsets[i]
            joint = np.zeros((len(labellings), len(own)), int)
            for place in range(nodes.shape[1]):
                joint = joint * self.L + labellings[:, nodes[:, place]]
            cliques[name] = (own, joint)
        return Sample(labellings, allowed, cliques, weight)

    def is_bound(self, model):
        """Tell whether the objective is an upper bound on the twin's, and not the twin's own."""
        if self.inference != "loopy" or self.missing:
            return self.inference == "loopy"
        pairs = [own for name, (own, _) in self._templates(model).items() if name != "nodes"]
        root = list(range(len(self.nodes)))
        for a, b in np.vstack([np.empty((0, 3), int), *pairs])[:, 1:].tolist():
            a, b = root[a], root[b]
            if a == b:
                return True
            root = [a if v == b else v for v in root]
        return False

    def check_predictions(self, model, twin, z, atol):
        """Compare marginals and log-probabilities with enumeration."""
        if self.inference == "gibbs":
            return
        for p, expected in zip(model.predict_proba(self.X), twin.marginals(z, self.L), strict=True):
            np.testing.assert_allclose(p, expected, rtol=0, atol=atol)
        np.testing.assert_allclose(-model.log_prob(self.X, self.y), twin.loss(z), rtol=atol, atol=10 * atol)

    def check_same(self, model, again):
        """Compare two models to the bit."""
        for p, q in zip(model.predict_proba(self.X), again.predict_proba(self.X), strict=True):
            np.testing.assert_array_equal(p, q)
