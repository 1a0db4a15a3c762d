"""Random problems of MultiLabelCRF and their twins."""

import itertools

import numpy as np

from certificates.network_problem import NetworkProblem, centred
from certificates.twins import Sample, Term, Twin
from kernelcrf import MultiLabelCRF


class MultiLabelProblem(NetworkProblem):
    """Rows with a few labels each."""

    estimator = MultiLabelCRF
    refusal = None

    def draw(self):
        super().draw()
        self.k = self.dice.count("labels", 1, 4)
        self.structure = self.dice.pick("structure", "full", "tree", "none", "auto", "pairs", share=0.8)
        self.m = self.dice.count("rows", 4, 18)
        self.classes = [0, 1]
        rows, rng = self.inputs(self.m, "inputs"), self.dice.stream("labels of rows")
        self.rows = rows
        self.truth = (rows.sum(axis=1)[:, None] + rng.normal(size=(self.m, self.k)) > 0).astype(int)
        self.truth[0], self.truth[1] = 0, 1
        self.hidden = np.zeros(self.truth.shape, bool)
        if self.missing:
            self.hidden[2:] = rng.random((self.m - 2, self.k)) < 0.3
            self.missing = "some" if self.hidden.any() else None
        self.draw_weights(self.m, self.truth[:, 0].tolist())
        if self.weights is not None and self.hidden.any() and not self.hidden[self.sequence_weights > 0].any():
            self.missing, self.hidden = None, np.zeros(self.truth.shape, bool)

    @property
    def pairs(self):
        rng = self.dice.stream("pairs")
        return [pair for pair in itertools.combinations(range(self.k), 2) if rng.random() < 0.6]

    @property
    def parameters(self):
        return super().parameters | {"structure": self.pairs if self.structure == "pairs" else self.structure}

    @property
    def X(self):
        return self.matrix(self.rows)

    @property
    def y(self):
        labels = np.where(self.hidden, -1, self.truth)
        return labels[:, 0] if self.k == 1 and not self.missing else labels

    def twin(self, model, *, exact):
        """Return the dense twin in the span of the model's landmarks."""
        one, pair = centred(2), np.kron(centred(2), centred(2))
        A = self.features(self.kernel, self.rows, model, "label 0")
        constant = np.ones((self.m, 1))
        edges = [tuple(edge) for edge in model.edges_.tolist()]
        terms, labels = {}, {}
        every = np.array(list(itertools.product((0, 1), repeat=self.k)), int)
        for j in range(self.k):
            terms |= {f"label {j}": Term(A, one, self.C), f"label {j} constant": Term(constant, one, self.C_label)}
            labels |= dict.fromkeys((f"label {j}", f"label {j} constant"), every[:, [j]])
        for i, j in edges:
            name, joint = f"edge {i} {j}", 2 * every[:, [i]] + every[:, [j]]
            terms[f"{name} constant"], labels[f"{name} constant"] = Term(constant, pair, self.C_label), joint
            if self.edge_kernel is not None:
                A_edge = self.features(self.edge_kernel, self.rows, model, name)
                terms[name], labels[name] = Term(A_edge, pair, self.C), joint
        samples = [
            Sample(
                every,
                ((every == own) | hidden).all(axis=1),
                {name: (np.array([i]), joint) for name, joint in labels.items()},
                weight,
            )
            for i, (own, hidden, weight) in enumerate(zip(self.truth, self.hidden, self.sequence_weights, strict=True))
        ]
        return Twin(terms, samples)

    def check_predictions(self, model, twin, z, atol):
        """Compare marginals and log-probabilities with enumeration."""
        expected = np.stack(twin.marginals(z, 2))[:, :, 1]
        p = model.predict_proba(self.X)
        np.testing.assert_allclose(p[:, 1:] if self.y.ndim == 1 else p, expected, rtol=0, atol=atol)
        np.testing.assert_allclose(-model.log_prob(self.X, self.y), twin.loss(z), rtol=atol, atol=10 * atol)

    def check_same(self, model, again):
        """Compare two models to the bit."""
        np.testing.assert_array_equal(model.predict_proba(self.X), again.predict_proba(self.X))
