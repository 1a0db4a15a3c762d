"""The base class of all fitted models."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Self

import numpy as np
from sklearn.utils import check_random_state

from kernelcrf.arrays import Arrays, Config, Floats, UserData
from kernelcrf.basis.features import FeatureMap
from kernelcrf.certificate import IMPORTED, NOT_FITTED, ROUNDED, Certificate
from kernelcrf.fitting.digest import digest_array, digest_value
from kernelcrf.fitting.laplace import Laplace
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.models import stored_parts as parts
from kernelcrf.persistence import Budget, ModelFileError
from kernelcrf.persistence.checks import read_count, read_number
from kernelcrf.validation import shown

# The entries of a file that record how the fit went and do not change predictions.
RECORDS = ("certificate", "n_iter", "laplace", "specification", "gap_curve", "objective_curve")


@dataclass(frozen=True, eq=False, kw_only=True)
class FittedModel:
    """Base class of fitted models, which estimators use to predict.

    certificate : the objective at the end of the fit, a lower bound on its minimum, and how the fit ended.
    C : the prior variance of the weights of input features, or of all weights if the model has no inputs; NaN if the
        weights were not fitted by this library.
    laplace : the evidence and the posterior of the weights by Laplace's approximation; None if they were not computed.
    kernels : the kernels of the inputs; each key is the name of the estimator's parameter that sets the kernel.
    specification : plain values that describe what the fit asked for; a later fit that starts from this model, or has
        it as its prior, must ask for the same.
    """

    certificate: Certificate
    n_iter: int
    C: float
    laplace: Laplace | None
    kernels: Mapping[str, InputKernel]
    specification: Config

    @property
    def feature_maps(self) -> Mapping[str, FeatureMap]:
        """Return the maps from inputs to features of the terms that have inputs; the keys are names of terms."""
        raise NotImplementedError

    @property
    def evidence(self) -> Laplace:
        """Return Laplace's approximation of the evidence log p(y|X), with an estimate of its error.

        Raise AttributeError if the evidence was not computed.
        """
        if self.laplace is None:
            raise AttributeError("the evidence was not computed: fit with laplace=True")
        return self.laplace

    def to_arrays(self) -> tuple[Config, Arrays]:
        """Return the model as two dicts: values that JSON can store, and named arrays."""
        config = {
            "certificate": {name: parts.plain(value, name) for name, value in asdict(self.certificate).items()},
            "n_iter": self.n_iter,
            "C": float(self.C),
            "laplace": None,
            "specification": self.specification,
        }
        if self.laplace is not None:
            names = "log_evidence", "error", "n_effective"
            config["laplace"] = {name: getattr(self.laplace, name) for name in names}
        return config, {}

    @classmethod
    def from_arrays(cls, config: Config, arrays: Arrays) -> Self:
        """Return the model, given the two dicts that `to_arrays` returned; raise an error if they are inconsistent."""
        raise NotImplementedError

    @property
    def answer_bytes(self) -> int:
        """Return how many bytes the first prediction for one token, row or node takes, beyond the arrays of a file."""
        raise NotImplementedError

    @classmethod
    def from_content(cls, config: Config, arrays: Arrays, budget: Budget) -> Self:
        """Return the model of a file, as `from_arrays` does; raise if the file is too small for what it claims."""
        model = cls.from_arrays(config, arrays)
        budget.charge(f"the first prediction of this {config['estimator']}", model.answer_bytes)
        return model

    @staticmethod
    def _read_shared(config: Config, posterior: Arrays, theta: Floats, *, rounded: bool) -> Config:
        """Return the fields that all models have, as read from a model file.

        posterior : arrays with the posterior of the weights; they are only read if the file says that it was computed.
        theta : the weights of the model, which are the mode of this posterior.
        rounded : whether the file has the weights in single precision.
        """
        # Files of earlier versions may have C among the parameters only.
        certificate = parts.certificate_from_config(config["certificate"])
        imported = certificate.status == IMPORTED
        if rounded and certificate.status not in NOT_FITTED:
            # The certificate is about the weights before they were rounded.
            certificate = Certificate(np.nan, -np.inf, ROUNDED)
        C = read_number(config if "C" in config else config["parameters"], "C", finite=not imported)
        if C <= 0:
            raise ModelFileError(f"the model file has C={C:g}: expected a number above 0. Use another copy")
        # Files of version 0.1 have no specification: the estimator derives it from the parameters in the file.
        specification = config.get("specification", {})
        if not isinstance(specification, dict):
            raise ModelFileError(f"the model file has specification={shown(specification)}: expected a JSON object")
        return {
            "certificate": certificate,
            "specification": specification,
            "n_iter": read_count(config, "n_iter"),
            "C": C,
            "laplace": parts.read_laplace(config["laplace"], posterior, theta),
        }


def model_digest(model: FittedModel, decoding: str | Config) -> str:
    """Return a digest of the decoding rule and of everything in the model on which predictions depend.

    The records of the fit, such as the certificate and the evidence, are left out. Fitting again with the same data and
    parameters therefore gives the same digest. If a model cannot be stored in a file, every call gives another digest.
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
