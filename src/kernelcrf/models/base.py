"""Define the base class of fitted models, whose scores are sums of terms, and convert models to files and back."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Self

import numpy as np
from sklearn.utils import check_random_state

from kernelcrf.arrays import Arrays, Config, Floats, UserData
from kernelcrf.basis.features import FeatureMap
from kernelcrf.certificate import IMPORTED, NOT_FITTED, ROUNDED, Certificate
from kernelcrf.fitting.digest import digest_array, digest_value
from kernelcrf.fitting.fit import Start
from kernelcrf.fitting.laplace import Laplace
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.models import stored_parts as parts
from kernelcrf.models.posterior import ScorePosterior
from kernelcrf.persistence import Budget, ModelFileError
from kernelcrf.persistence.checks import (
    read_array,
    read_count,
    read_number,
    read_text,
)
from kernelcrf.persistence.feature_maps import maps_to_arrays, read_map
from kernelcrf.readers.base_scores import read_base_names
from kernelcrf.score.layout import Layout
from kernelcrf.score.terms import Term, input_name
from kernelcrf.validation import shown, shown_list

# The entries of a file that record how the fit went and do not change predictions.
RECORDS = ("certificate", "n_iter", "laplace", "specification", "gap_curve", "objective_curve", "trials")


@dataclass(frozen=True, eq=False, kw_only=True)
class FittedModel:
    """Base class of fitted models, which estimators use to predict.

    certificate : the objective at the end of the fit, a lower bound on its minimum, and how the fit ended.
    C : the prior variance of the weights of input features, or of all weights if the model has no inputs; NaN if the
        weights were not fitted by this library.
    laplace : the evidence and the posterior of the weights by Laplace's approximation; None if they were not computed.
    layout, theta : the terms, and the weights of all terms as one vector.
    maps : for each term that depends on inputs, the map from inputs to features.
    kernels : a dict from the name of each kernel parameter of the estimator to the kernel that the parameter sets.
    specification : plain values that describe the settings of the fit. A later fit that starts from this model, or uses
        this model as a prior, must have the same specification.
    base : the names of the base scores of the fit, such as "tokens" and "steps". Predictions need base scores with the
        same names.
    """

    certificate: Certificate
    n_iter: int
    C: float
    laplace: Laplace | None
    layout: Layout
    theta: Floats
    maps: Mapping[str, FeatureMap]
    kernels: Mapping[str, InputKernel]
    specification: Config
    base: tuple[str, ...] = ()

    @property
    def variances(self) -> dict[str, float]:
        """Return a dict from the name of each named input to the prior variance of its weights."""
        named = {input_name(term.name): term.C for term in self.layout.terms}
        return {name: C for name, C in named.items() if name is not None}

    @property
    def evidence(self) -> Laplace:
        """Return Laplace's approximation of the evidence log p(y|X), with an estimate of its error.

        Raise AttributeError if the evidence was not computed.
        """
        if self.laplace is None:
            raise AttributeError("the evidence was not computed: fit with laplace=True")
        return self.laplace

    @property
    def score_posterior(self) -> ScorePosterior:
        """Return an object that computes the posterior distribution of the scores for any inputs.

        Raise AttributeError if the posterior of the weights was not kept.
        """
        if self.laplace is None or self.laplace.posterior is None:
            raise AttributeError("the posterior of the weights was not kept: fit with laplace=True")
        return ScorePosterior(self.layout, self.laplace.posterior, self.maps)

    def start_for(self, terms: Sequence[Term], n_columns: Callable[[str], int] | None = None) -> Start:
        """Return a starting point for a fit of `terms`: the landmarks and the weights of this model.

        The weights of new columns, and of new pairs of a feature and a label, start at 0.

        n_columns : a function from the name of an input to its number of columns. New columns come after all others.
            None means that no input has new columns.
        """
        new, old = {term.name: term for term in terms}, self.layout.split(self.theta)
        maps: dict[str, FeatureMap] = {}
        weights, shared = {}, dict[int, FeatureMap]()
        for term in self.layout.terms:
            if term.name not in new:
                continue
            W = term.unpack(old[term.name])
            if (feature_map := self.maps.get(term.name)) is not None:
                # Terms that share landmarks share one map.
                wider = feature_map if n_columns is None else feature_map.with_columns(n_columns(str(term.input)))
                maps[term.name] = shared.setdefault(id(feature_map), wider)
                W = np.pad(W, ((0, maps[term.name].n - len(W)), (0, 0)))
            weights[term.name] = new[term.name].pack(W)
        return Start(maps, weights)

    def to_arrays(self) -> tuple[Config, Arrays]:
        """Return the model as two dicts: values that JSON can store, and named arrays."""
        config = {
            "certificate": {name: parts.plain(value, name) for name, value in asdict(self.certificate).items()},
            "n_iter": self.n_iter,
            "C": float(self.C),
            "laplace": None,
            "specification": self.specification,
        } | ({"base_scores": list(self.base)} if self.base else {})
        layout, theta = self._without_zeros()
        config["maps"], arrays = maps_to_arrays(self.maps.values())
        places = list(dict.fromkeys(map(id, self.maps.values())))
        indices = {name: places.index(id(feature_map)) for name, feature_map in self.maps.items()}
        stored = layout.to_config()
        config["terms"] = [one | {"map": indices.get(one["name"])} for one in stored["terms"]]
        config["label_kernels"] = stored["label_kernels"]
        arrays["theta"] = theta
        for term in layout.terms:
            arrays |= parts.pairs_to_arrays(term.name, term.pairs)
        if self.laplace is not None:
            names = "log_evidence", "error", "n_effective"
            config["laplace"] = {name: getattr(self.laplace, name) for name in names}
            arrays |= {} if self.laplace.posterior is None else parts.posterior_arrays(self.laplace.posterior)
        return config, arrays

    def _without_zeros(self) -> tuple[Layout, Floats]:
        """Return the layout and the weights without pairs whose weight is zero.

        If the model has a posterior, keep all pairs.
        """
        if self.laplace is not None and self.laplace.posterior is not None:
            return self.layout, self.theta
        kept, weights = [], []
        for term, W in zip(self.layout.terms, self.layout.split(self.theta).values(), strict=True):
            some = term.pairs is not None and not W.all()
            kept.append(replace(term, pairs=term.pairs.select(W != 0)) if some and term.pairs is not None else term)
            weights.append(W[W != 0] if some else W.ravel())
        return Layout(tuple(kept)), np.concatenate(weights)

    @classmethod
    def from_arrays(cls, config: Config, arrays: Arrays) -> Self:
        """Return the model, given the two dicts that `to_arrays` returned; raise an error if they are inconsistent."""
        raise NotImplementedError

    @property
    def answer_bytes(self) -> int:
        """Return how many bytes the first prediction for a token or row needs in memory, besides the model's arrays."""
        raise NotImplementedError

    @classmethod
    def from_content(cls, config: Config, arrays: Arrays, budget: Budget) -> Self:
        """Return the model of a file, as `from_arrays` does; raise if it needs more memory than `budget` allows."""
        model = cls.from_arrays(config, arrays)
        budget.charge(f"the first prediction of this {config['estimator']}", model.answer_bytes)
        return model

    @classmethod
    def _read_fields(
        cls, config: Config, arrays: Arrays, sizes: Mapping[str, int], widths: Mapping[str, int | None]
    ) -> Config:
        """Return the fields that all models have, except `kernels`, as read from a model file.

        Raise an error if they are inconsistent.

        sizes : for each kind of cliques that the model may have, the number of labellings of one clique.
        widths : for each input that the model may have, the number of its columns, or None if any number is valid.
        """
        layout, maps = _read_layout(config, arrays, sizes, widths)
        theta = read_array(arrays, "theta", (layout.size,), "f").astype(np.float64)
        certificate = parts.certificate_from_config(config["certificate"])
        imported = certificate.status == IMPORTED
        if arrays["theta"].dtype.itemsize < theta.itemsize and certificate.status not in NOT_FITTED:
            # The certificate is about the weights before they were rounded.
            certificate = Certificate(np.nan, -np.inf, ROUNDED)
        C = read_number(config, "C", finite=not imported)
        if C <= 0:
            raise ModelFileError(
                f"the model file has C={C:g}: expected a number above 0. The file may be damaged: use another copy of "
                "it"
            )
        # Without a specification, the estimator derives it from the parameters in the file.
        specification = config.get("specification", {})
        if not isinstance(specification, dict):
            raise ModelFileError(
                f"the model file has specification={shown(specification)}: expected a JSON object. The file may be "
                "damaged: use another copy of it"
            )
        return {
            "certificate": certificate,
            "specification": specification,
            "n_iter": read_count(config, "n_iter"),
            "C": C,
            "laplace": parts.read_laplace(config["laplace"], arrays, theta),
            "layout": layout,
            "theta": theta,
            "maps": maps,
            "base": read_base_names(config.get("base_scores", [])),
        }


def common_variance(terms: Sequence[Term]) -> float:
    """Return the prior variance C of the terms whose input has no name; if there are none, that of the first term."""
    return next((term.C for term in terms if input_name(term.name) is None), terms[0].C)


def _read_layout(
    config: Config, arrays: Arrays, sizes: Mapping[str, int], widths: Mapping[str, int | None]
) -> tuple[Layout, dict[str, FeatureMap]]:
    """Return the terms of a model file and their feature maps; `FittedModel._read_fields` explains the arguments."""
    pairs, maps = {}, dict[str, FeatureMap]()
    known: dict[tuple[int, int | None], FeatureMap] = {}
    for one in config["terms"]:
        name, cliques = read_text(one, "name"), read_text(one, "cliques")
        read_number(one, "C")
        if cliques not in sizes:
            raise ModelFileError(
                f"the model file has cliques called {shown(cliques)}: expected one of {shown_list(sizes)}. The file "
                "may be damaged: use another copy of it"
            )
        pairs[name] = parts.pairs_from_arrays(arrays, name, sizes[cliques])
        if one["kernel"] is not None:
            source = read_text(one, "input")
            if source not in widths:
                raise ModelFileError(
                    f"the term {shown(name)} of the model file has the input {shown(source)}: expected one of "
                    f"{shown_list(widths)}. The file may be damaged: use another copy of it"
                )
            key = read_count(one, "map"), widths[source]
            if key not in known:
                known[key] = read_map(config["maps"][key[0]], arrays, f"map {key[0]}.", key[1])
            maps[name] = known[key]
    layout = Layout.from_config(config, pairs)
    for term in layout.terms:
        # The size of a label kernel is compared before its rank is computed, which takes memory.
        n, size = maps[term.name].n if term.name in maps else 1, sizes[term.cliques]
        fits = type(term.n) is int and type(n) is int and term.n == n and size == term.k_y.L
        fits = fits and term.k_y.moves_inputs == (term.views is not None)
        if term.views is not None:
            fits = fits and term.views.columns.shape == (term.k_y.views, widths[str(term.input)])
        if not fits or (term.pairs is not None and term.pairs.n != n):
            raise ModelFileError(
                f"the term {shown(term.name)} of the model file has {shown(term.n)} features and a label kernel of "
                f"{shown(term.k_y.L)} labellings: expected {n} features and {size} labellings. The file may be "
                "damaged: use another copy of it"
            )
    return layout, maps


def model_digest(model: FittedModel, decoding: str | Config) -> str:
    """Return a digest of the decoding rule and of everything in the model on which predictions depend.

    The records of the fit, such as the certificate and the evidence, are left out. Fitting again with the same data and
    parameters therefore gives the same digest. If a model cannot be stored in a file, each call returns a new random
    digest, which equals no other.
    """
    try:
        config, arrays = model.to_arrays()
    except TypeError:
        return secrets.token_hex(16)
    config = {name: value for name, value in config.items() if name not in RECORDS}
    digests = {name: digest_array(array) for name, array in arrays.items() if name not in RECORDS}
    return digest_value([config, decoding, digests])


def rng_of(random_state: UserData) -> np.random.Generator:
    """Return a NumPy generator; `random_state` may be None, an integer or a RandomState, as in scikit-learn."""
    return np.random.default_rng(check_random_state(random_state).randint(np.iinfo(np.int32).max))
