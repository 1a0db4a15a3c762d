"""The fitted state that models share: certificate and evidence, and of sequences and rows also kernel and weights."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from hashlib import blake2b
from typing import Self

import numpy as np
from scipy.linalg import solve_triangular
from sklearn.utils import check_random_state

from kernelcrf.arrays import Array, Arrays, Config, Floats, Inputs, UserData
from kernelcrf.basis.features import FeatureMap, WhitenedMap
from kernelcrf.basis.folded import Weights, fold
from kernelcrf.certificate import Certificate
from kernelcrf.engines.local import LocalEngine
from kernelcrf.fitting.fit import Start
from kernelcrf.fitting.laplace import Laplace
from kernelcrf.fitting.training import Trained
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.models import stored_parts as parts
from kernelcrf.models.posterior import ScorePosterior
from kernelcrf.persistence import ModelFileError
from kernelcrf.persistence.checks import read_array, read_count, read_map, read_number, read_text
from kernelcrf.terms import STEP_TERM, TOKEN_TERM, TRANSITION_TERM, Layout
from kernelcrf.validation import shown

N_SAMPLES = 100
# The number of labels in a clique of each term.
NODES = {TOKEN_TERM: 1, TRANSITION_TERM: 2, STEP_TERM: 2}
# What a file says of how the fit went, and not of what the model predicts.
RECORDS = ("certificate", "n_iter", "laplace", "gap_curve", "objective_curve")


@dataclass(frozen=True, eq=False, kw_only=True)
class FittedModel:
    """The result of a fit, from which an estimator predicts.

    C : prior variance of the weights on inputs, or of all of them if none has inputs.
    laplace : evidence and posterior of the weights, or None if they were not computed.
    """

    certificate: Certificate
    n_iter: int
    C: float
    laplace: Laplace | None

    @property
    def evidence(self) -> Laplace:
        """Return the evidence, or raise if it was not computed."""
        if self.laplace is None:
            raise AttributeError("the evidence was not computed: fit with laplace=True")
        return self.laplace

    @property
    def kernels(self) -> Mapping[str, InputKernel]:
        """Return the kernels by the names of the parameters that they come from."""
        return {}

    def to_arrays(self) -> tuple[Config, Arrays]:
        """Return a JSON-able config and named arrays, from which `from_arrays` makes an equal model."""
        config = {
            "certificate": {name: parts.plain(value, name) for name, value in asdict(self.certificate).items()},
            "n_iter": self.n_iter,
            "C": float(self.C),
            "laplace": None,
        }
        if self.laplace is not None:
            names = "log_evidence", "error", "n_effective"
            config["laplace"] = {name: getattr(self.laplace, name) for name in names}
        return config, {}

    @classmethod
    def from_arrays(cls, config: Config, arrays: Arrays) -> Self:
        """Return the model that `to_arrays` described, once its parts are consistent."""
        raise NotImplementedError

    @staticmethod
    def _read_shared(config: Config, posterior: Arrays, theta: Floats) -> Config:
        """Return the fields of all models from a file, with the arrays of a posterior around the mode theta."""
        # Files of earlier versions may have the C of the parameters alone.
        C = read_number(config if "C" in config else config["parameters"], "C")
        if C <= 0:
            raise ModelFileError(f"C is {C:g}: expected a number above 0")
        return {
            "certificate": parts.certificate_from_config(config["certificate"]),
            "n_iter": read_count(config, "n_iter"),
            "C": C,
            "laplace": parts.read_laplace(config["laplace"], posterior, theta),
        }


@dataclass(frozen=True, eq=False, kw_only=True)
class KernelModel(FittedModel):
    """Fitted weights with the kernel and the features that they belong to.

    map : features of the input kernel; coef (n, L) are the weights of labels on them.
    theta, layout : all weights as one vector, and how they lie in it.
    """

    kernel: InputKernel
    map: FeatureMap
    layout: Layout
    theta: Floats
    coef: Floats
    objective_curve: Floats

    @property
    def landmarks(self) -> Inputs | None:
        """Return the landmarks (n, d), or None for the linear kernel."""
        return self.map.landmarks if isinstance(self.map, WhitenedMap) else None

    @cached_property
    def weights(self) -> Weights:
        """Return the weights as a function of inputs, with the whitening multiplied in."""
        return fold(self.map, self.coef)

    @property
    def dual_coef(self) -> Floats:
        """Return the weights a (n, L) of f(x) = sum_b k(x, b) a_b over landmarks b, or `coef` for the linear kernel."""
        if not isinstance(self.map, WhitenedMap):
            return self.coef
        return np.asarray(solve_triangular(self.map.R.astype(np.float64), self.coef, trans="T", lower=True))

    @property
    def kernels(self) -> dict[str, InputKernel]:
        """Return the kernels by the names of the parameters that they come from."""
        return {"kernel": self.kernel}

    @property
    def score_posterior(self) -> ScorePosterior:
        """Return the posterior of scores, or raise if the posterior of the weights was not kept."""
        if self.laplace is None or self.laplace.posterior is None:
            raise AttributeError("the posterior of the weights was not kept: fit with laplace=True")
        return ScorePosterior(self.layout, self.laplace.posterior, self.maps)

    @property
    def maps(self) -> dict[str, FeatureMap]:
        """Return the feature maps of the templates that have inputs, by name."""
        return {TOKEN_TERM: self.map}

    @property
    def end(self) -> Start:
        """Return where a later fit may begin."""
        return Start(self.maps, self.layout.split(self.theta))

    def tempered(self, temperature: float) -> Self:
        """Return the model with its weights divided by a temperature, without posterior and certificate."""
        return replace(
            self,
            theta=self.theta / temperature,
            coef=self.coef / temperature,
            certificate=Certificate.of_tempered(),
            laplace=None,
        )

    def draw_scores(
        self, X: Inputs, n_samples: int | None, temperature: float, random_state: UserData, engine: LocalEngine
    ) -> Iterator[tuple[Array, Array]]:
        """Yield node and edge scores at inputs X under draws from the posterior, whose covariance is tempered."""
        posterior = self.score_posterior
        if n_samples is None:
            n_samples = posterior.posterior.n_kept or N_SAMPLES
        return posterior.draws(X, n_samples, rng_of(random_state), temperature, engine)

    def to_arrays(self) -> tuple[Config, Arrays]:
        """Return a JSON-able config and named arrays, from which `from_arrays` makes an equal model."""
        config, _ = super().to_arrays()
        map_config, of_map = self.map.to_arrays()
        arrays: Arrays = {f"map.{name}": array for name, array in of_map.items()}
        arrays |= {"theta": self.theta, "coef": self.coef, "objective_curve": self.objective_curve}
        if self.laplace is not None and self.laplace.posterior is not None:
            arrays |= parts.posterior_arrays(self.laplace.posterior)
        return config | {
            "kernel": self.kernel.to_config(),
            "map": map_config,
            "layout": self.layout.to_config(),
        }, arrays

    @staticmethod
    def _fields_of(found: Trained) -> Config:
        """Return the shared fields of the model that a fit has found."""
        fitted, term = found.fit, found.fit.layout.terms[0]
        return {
            "kernel": term.kernel,
            "C": term.C,
            "map": fitted.maps[TOKEN_TERM],
            "layout": fitted.layout,
            "theta": fitted.theta,
            "coef": term.k_y.expand(fitted.weights[TOKEN_TERM]),
            "certificate": fitted.certificate,
            "n_iter": fitted.solution.n_iter,
            "objective_curve": np.array([record.value for record in fitted.solution.history]),
            "laplace": found.laplace,
        }

    @classmethod
    def _read_fields(cls, config: Config, arrays: Arrays, n_features: int, L: int) -> Config:
        """Return the shared fields from a model file, once they are consistent."""
        own_map = read_map(config["map"], arrays, "map.", n_features)
        if any(one["label_kernel"]["L"] != L or not 0 < one["n"] <= len(arrays["theta"]) for one in config["layout"]):
            raise ModelFileError(f"the templates do not fit the weights: expected {L} labels in each")
        layout = Layout.from_config(config["layout"])
        if any(NODES.get(read_text(one, "name")) != read_count(one, "nodes") for one in config["layout"]):
            raise ModelFileError(f"the templates are {shown(list(layout.slices))}: expected {', '.join(NODES)}")
        theta = read_array(arrays, "theta", (layout.size,), "f")
        shared = cls._read_shared(config, arrays, theta)
        return shared | {
            "kernel": InputKernel.from_config(config["kernel"]),
            "map": own_map,
            "layout": layout,
            "theta": theta,
            "coef": read_array(arrays, "coef", (own_map.n, L), "f"),
            "objective_curve": read_array(arrays, "objective_curve", (shared["n_iter"] + 1,), "f"),
        }


def model_digest(model: FittedModel, decoding: str) -> str:
    """Return a digest that tells whether two models predict the same, given the rule of decoding.

    It covers everything that a model file holds except the records of how the fit went: fitting again with the same
    data and parameters gives the same digest. If no file can hold the model, it is a new one each time.
    """
    try:
        config, arrays = model.to_arrays()
    except TypeError:
        return secrets.token_hex(16)
    config = {name: value for name, value in config.items() if name not in RECORDS}
    found = blake2b(json.dumps([config, decoding], sort_keys=True).encode(), digest_size=16)
    for name in sorted(set(arrays) - set(RECORDS)):
        array = np.ascontiguousarray(arrays[name])
        found.update(f"{name} {array.dtype.str} {array.shape}".encode())
        found.update(array.data)
    return found.hexdigest()


def rng_of(random_state: UserData) -> np.random.Generator:
    """Return a generator that is seeded by scikit-learn's `random_state`."""
    return np.random.default_rng(check_random_state(random_state).randint(np.iinfo(np.int32).max))
