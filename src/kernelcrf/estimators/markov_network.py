"""MarkovNetwork: the joint distribution of dependent discrete variables, without inputs (section 7 of the paper).

The probability of the values z, one value z_v for each variable v, is

    p(z) = exp(sum_v f_v(z_v) + sum_(u,v) f_uv(z_u, z_v)) / Z.

The potentials f_v and f_uv are functions in the RKHS of a kernel on values. With the kernel "delta", each value and
each pair of values has a separate weight. With a kernel on numbers, such as "rbf", close values have similar
potentials. The potential f_uv of a pair contains only the interaction; main effects are in f_u and f_v.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any

import numpy as np
from sklearn.base import DensityMixin

from kernelcrf.answers.uncertainty import Uncertainty, average_draws
from kernelcrf.arrays import Array, Floats, Places, UserData
from kernelcrf.decoding import VITERBI
from kernelcrf.distributions.table import TableDistribution
from kernelcrf.estimators.base import Fitted, FittedNames
from kernelcrf.estimators.network import NetworkEstimator, interacting_pairs
from kernelcrf.estimators.parameters import CATEGORIES, OF_POSTERIORS, POSTERIOR, STRUCTURE
from kernelcrf.estimators.prior import earlier_of
from kernelcrf.fitting.graphs import LabelledGraphs
from kernelcrf.graphs.label_graphs import count_pairs
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.kernels.joint_labels import Contrasts, Product
from kernelcrf.kernels.labels import LabelKernel, LabelMap
from kernelcrf.kernels.named_kernels import NAMED
from kernelcrf.models.base import rng_of
from kernelcrf.models.label_sets import TableModel, pair_graph, pair_name, variable_name
from kernelcrf.readers.tables import TableReader
from kernelcrf.readers.weights import only_weighted, read_weights
from kernelcrf.score.terms import Term
from kernelcrf.validation import SEED, SHARE, SIZE, ParameterError, either, nothing, one_of, positive, shown, validated

SAME = 1e-12


@dataclass(eq=False, repr=False, kw_only=True)
class MarkovNetwork(DensityMixin, NetworkEstimator[TableModel]):  # type: ignore[misc]
    """Markov random field on the columns of a table of discrete values, with kernels on cliques.

    X is a table of numbers or strings, such as a data frame, with one column per variable; None and NaN are missing
    values. `fit` raises an error for a column that seems to be continuous: it has fractional numbers and more than 20
    different values, which occur fewer than five times on average. Cut such a column into intervals with
    scikit-learn's KBinsDiscretizer. Each variable has a score, also called potential, for each of its values. Each pair
    of interacting variables has a table of potentials for all pairs of their values.

    Parameters
    ----------
    kernel : "delta", or the name of a kernel as in ChainCRF, default="delta"
        Kernel on the values of a variable. "delta" treats all values as unrelated. With the others, which need numbers,
        similar values have similar potentials.
    gamma : float or None, default=None
        Gamma of the kernel, if it has one; None means 1.
    C : float, "auto", "evidence" or a rule of kernelcrf.rules, default=1.0
        Prior variance of all potentials. "auto" chooses a power of 10 on held-out rows. "evidence" maximises the
        marginal likelihood: the probability of the training data, averaged over the prior distribution.
    structure : "auto", "full", "tree", "none" or pairs of column numbers, default="auto"
        Pairs of variables that interact. "auto" learns them by a structure search. It starts without pairs, adds the
        pairs that are expected to lower the objective most, and fits the model again, until `structure_tol` or
        `min_gain` stops it. "full" uses all pairs, and "none" uses no pair. "tree" uses the pairs of a Chow-Liu tree:
        the tree with the largest total mutual information between neighbouring variables. You can also pass a list of
        pairs.
    structure_tol : float, default=1e-3
        structure="auto" stops if all other interactions together could lower the objective P by at most
        structure_tol |P|.
    min_gain : float or None, default=None
        structure="auto" also stops if no interaction is expected to lower the objective by more than `min_gain`. None
        means log(n_samples) / 2 per weight of the interaction.
    categories : "auto" or list, default="auto"
        The values of each column, in a list with one entry per column: an array of values, or None for the values that
        occur. "auto" means None for all columns. A column whose values are given may have only missing values: it is a
        hidden variable, such as the number of a cluster.
    laplace : bool, default=False
        Whether to compute the marginal likelihood and the posterior of the weights, which `log_marginal_likelihood`,
        `uncertainty` and `predict_proba(posterior="laplace")` need.
    solver : str or a solver such as NewtonCG(), default="auto"
        One of the solvers of ChainCRF, except "dual". "auto" is "lbfgs". `kernelcrf.solvers.Restarts(5)` fits again
        from other random starting points if values are missing.
    tol : float, default=1e-6
        The fit stops when the objective is proved to be within this fraction of its minimum.
    certify_full : bool, default=False
        Whether to compute `certificate_.gap_full`. Without landmarks, it is the same as `certificate_.gap_in_span`.
    warm_start : bool, default=False
        Start from the weights of the previous fit, which must have had the same kernel.
    prior : None, a fitted MarkovNetwork, or the path of its file, default=None
        An earlier model that this fit updates with new data, without the earlier training data, as in ChainCRF. The
        table must have the columns and values of the earlier one; list values that may occur later in `categories`. The
        pairs of variables that interact in the earlier model stay; structure="auto" may add others.
    random_state : int, RandomState or None, default=None
        Seed for the starting point of the fit, if values are missing.
    max_iter, checkpoint, n_jobs, verbose : as in ChainCRF
        These parameters have the same meaning and the same defaults as in ChainCRF.

    Attributes
    ----------
    categories_ : list of arrays, the values of each variable.
    edges_ : (n_edges, 2), the pairs of variables that interact.
    potentials_ : list of the tables of these pairs, (n_values, n_values) each.
    certificate_ : certificate of the fit, for the model with the pairs `edges_`.
    search_ : the rounds of the structure search, and the pairs that were not added, with bounds on their gains. It is
        None unless structure="auto".
    n_features_in_ : number of columns of X.
    feature_names_in_ : names of the columns of X, after a fit to a data frame.
    n_iter_ : the number of iterations of the solver.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcrf import MarkovNetwork
    >>> rng = np.random.default_rng(0)
    >>> a = rng.integers(3, size=500)
    >>> table = np.column_stack((a, (a + rng.integers(2, size=500)) % 3, rng.integers(2, size=500)))
    >>> model = MarkovNetwork(laplace=True).fit(table)
    >>> model.edges_.tolist()  # columns 0 and 1 depend on each other
    [[0, 1]]
    >>> model.score_samples(table[:2]).round(2), round(model.score(table), 1), model.sample(2, random_state=0).shape
    (array([-2.44, -2.59]), -1247.0, (2, 3))
    >>> model.impute([[2, None, 0]]).tolist(), model.predict_proba([[2, None, 0]])[1].round(2)
    ([[2, 0, 0]], array([[0.52, 0.01, 0.47]]))
    >>> model.distribution([[2, None, 0]]).entropy().round(2)  # of the missing values, given the known ones
    array([0.75])
    >>> round(model.log_marginal_likelihood(), 1)
    -1277.3
    >>> model.uncertainty([[2, None, 0]], n_samples=20).epistemic.shape  # how much more data would help
    (1, 3)
    >>> model.save("table.kcrf")
    """

    kernel: Annotated[str, either(one_of("delta", *NAMED))] = field(default="delta", kw_only=False)
    gamma: Annotated[float | None, either(positive, nothing, advice="None uses scikit-learn's default")] = None
    structure: Annotated[Any, STRUCTURE] = "auto"
    categories: Annotated[Any, CATEGORIES] = "auto"
    tol: Annotated[float, SHARE] = 1e-6

    _model_type = TableModel

    categories_ = Fitted[list[Array]]("categories")
    edges_ = Fitted[Places]("edges")
    potentials_ = Fitted[list[Floats]]("potentials")
    n_features_in_ = Fitted[int]("n_features")
    feature_names_in_ = FittedNames("reader.column_names")

    def fit(self, X: UserData, y: UserData = None, sample_weight: UserData = None) -> MarkovNetwork:
        """Fit the model to the rows of X, and return it; `sample_weight` has one weight per row, and y is ignored."""
        self._validate_params()
        earlier, prior = self._find_start(), self._find_prior()
        if prior is None:
            reader, labels = TableReader.fit(X, None if isinstance(self.categories, str) else self.categories)
        else:
            reader, labels = prior.reader, prior.reader.read(X)
        given = read_weights(sample_weight, len(labels), "row", part=prior is not None)
        weights, labels = only_weighted(given, labels)
        if prior is not None and not len(labels):
            self.model_ = prior
            return self
        cards, known = np.array([len(values) for values in reader.categories]), None if prior is None else prior.edges
        pairs = interacting_pairs(self.structure, len(cards), partial(count_pairs, labels, cards, weights), known)
        kernels = [self._label_kernel(values, v) for v, values in enumerate(reader.categories)]
        singles, C = [variable_name(v) for v in range(len(cards))], self._first_C(earlier)
        terms = [Term(name, name, k_y, C) for name, k_y in zip(singles, kernels, strict=True)]
        terms += [Term(pair_name(u, v), pair_name(u, v), Product((kernels[u], kernels[v])), C) for u, v in pairs]
        cliques = pair_graph(cards, pairs, variable_name).cliques
        data = LabelledGraphs(cards, cliques, labels, weights=weights, pooled=bool((labels >= 0).all()))
        update = None if prior is None else earlier_of(prior, np.arange(1, dtype=np.int32), 1, data.n_columns)
        shared = self._train_network(terms, data, singles, self._seed(), earlier, update)
        edges = [pair for pair in pairs if pair_name(*pair) in shared["layout"].cliques]
        self.model_ = TableModel(
            **shared,
            reader=reader,
            edges=np.array(edges, np.int64).reshape(-1, 2),
        )
        return self

    def distribution(self, X: UserData) -> TableDistribution:
        """Return the distribution of the missing values of the rows of X, given their known values.

        Its methods share one pass of inference: marginals of variables and pairs, entropies, samples, and the k
        likeliest completions.
        """
        model = self._model
        return TableDistribution(rule=VITERBI, model=model, field=model.field(model.reader.read(X), self._engine))

    def score_samples(self, X: UserData) -> Floats:
        """Return log p(z) of each row z of X.

        If a row has missing values, this is the log-probability of its known values.
        """
        model = self._model
        return model.log_prob(model.reader.read(X), self._engine)

    def score(self, X: UserData, y: UserData = None) -> float:
        """Return the log-likelihood of X, which is the sum of log p(z) over the rows z."""
        return float(self.score_samples(X).sum())

    @validated(n_samples=either(SIZE), random_state=SEED)
    def sample(self, n_samples: int = 1, random_state: UserData = None) -> Array:
        """Return a table of `n_samples` rows that are drawn independently from the model."""
        model = self._model
        return model.reader.decode(model.sample(n_samples, rng_of(random_state)))

    def impute(self, X: UserData) -> Array:
        """Return X with the missing values of each row filled in by their likeliest combination."""
        rows: Array = self.distribution(X).decode()
        return rows

    @validated(posterior=POSTERIOR, **OF_POSTERIORS)
    def predict_proba(
        self,
        X: UserData,
        *,
        posterior: str = "map",
        n_samples: int | None = None,
        variance_temperature: float = 1.0,
        random_state: UserData = 0,
    ) -> list[Floats]:
        """Return the probabilities of the values of each variable, given the known values of each row.

        The result has one array per variable, with one row per row of X and one column per value of the variable. A
        known value has probability 1; to predict a known value, pass None in its place. The parameters are explained in
        `ChainCRF.predict_proba`.
        """
        if posterior == "map":
            return self.distribution(X).marginals()
        model = self._model
        p = self._average(model, X, (n_samples, variance_temperature, random_state))[0]
        return [p[:, v, : len(values)] for v, values in enumerate(model.categories)]

    @validated(**OF_POSTERIORS)
    def uncertainty(
        self,
        X: UserData,
        *,
        n_samples: int | None = None,
        variance_temperature: float = 1.0,
        random_state: UserData = 0,
    ) -> Uncertainty:
        """Return the epistemic and aleatoric uncertainty of the missing values of each row, in nats.

        The results have one row per row of X and one column per variable; both are 0 for known values. The parameters
        are explained in `ChainCRF.predict_proba`.
        """
        return Uncertainty(*self._average(self._model, X, (n_samples, variance_temperature, random_state))[1:])

    def _average(self, model: TableModel, X: UserData, draws: tuple[int | None, float, UserData]) -> list[Floats]:
        """Return three arrays [row, variable, ...]: mean probabilities, epistemic and aleatoric uncertainty."""
        parts = average_draws(model.draw_marginals(model.reader.read(X), *draws, self._engine))
        return [part.reshape(-1, model.n_features, *part.shape[1:]) for part in parts]

    def _check_combinations(self) -> None:
        super()._check_combinations()
        if self._optimizes_kernel:
            raise ParameterError(
                f"C={shown(self.C)}: expected optimize_kernel=False, because MarkovNetwork has no kernel of inputs; "
                "search over gamma instead"
            )

    def _label_kernel(self, values: Array, v: int) -> LabelMap:
        """Return the kernel on the values of variable v, centred so that potentials sum to zero over the values."""
        if self.kernel == "delta" or len(values) == 1:
            return Contrasts(len(values))
        try:
            numbers = values.astype(np.float64)[:, None]
        except ValueError:
            raise ValueError(
                f"kernel={self.kernel!r} compares numbers, but variable {v} has the values {values[:3].tolist()}: "
                "expected numbers, or kernel='delta'"
            ) from None
        # Centring removes a common offset from the linear kernel; doing so before the product avoids rounding errors.
        kernel = InputKernel(self.kernel, self.gamma)
        offset = numbers.mean() if kernel.is_linear else 0.0
        gram = np.asarray(kernel.gram(numbers - offset), np.float64)
        # The kernel of a pair is the product of two such kernels, which must not overflow either.
        if not np.abs(gram).max() <= np.sqrt(np.finfo(np.float64).max) / len(gram):
            raise ValueError(
                f"kernel={self.kernel!r} overflows on the values of variable {v}, which go up to "
                f"{np.abs(numbers).max():.3g}: scale them, or use kernel='delta'"
            )
        centred = gram - gram.mean(axis=0) - gram.mean(axis=1)[:, None] + gram.mean()
        if np.abs(centred).max() <= SAME * np.abs(gram).max():
            raise ValueError(
                f"kernel={self.kernel!r} does not distinguish the values of variable {v}, such as "
                f"{values[:3].tolist()}: expected a kernel that does, for example 'rbf' or 'delta'"
            )
        centred = 0.5 * (centred + centred.T)
        # Centring a smooth kernel leaves small values, so that its rounding errors may be large negative eigenvalues.
        least = np.linalg.eigvalsh(centred)[0]
        if -len(gram) * np.finfo(np.float64).eps * np.abs(gram).max() <= least < 0:
            centred -= least * np.eye(len(centred))
        return LabelKernel.of(centred, len(centred))
