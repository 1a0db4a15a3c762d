"""Constraints on the parameters of estimators, and the base class that checks them at the start of `fit`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import ClassVar

import numpy as np
from sklearn.base import BaseEstimator

from kernelcrf.arrays import UserData
from kernelcrf.basis.choice import PIVOTS
from kernelcrf.fitting.checkpoints import CHECKPOINT
from kernelcrf.kernels.inputs import COEF0, DEGREE, KERNEL
from kernelcrf.kernels.labels import LABEL_KERNEL
from kernelcrf.readers.constraints import ALIASES, ALPHABETS
from kernelcrf.readers.feature_dicts import HASH_FEATURES
from kernelcrf.solvers import SOLVER
from kernelcrf.terms import PRIOR_VARIANCE
from kernelcrf.validation import (
    COUNT,
    FLAG,
    N_JOBS,
    POSITIVE,
    SEED,
    Constraint,
    Parameter,
    ParameterError,
    check_parameters,
    either,
    has_methods,
    instance_of,
    nothing,
    one_of,
    positive,
    real,
    shown,
    whole,
)

STRUCTURES = ("auto", "full", "tree", "none")


class ValidatedEstimator(BaseEstimator):  # type: ignore[misc]
    """An estimator that declares what its parameters may be, and which of them exclude each other."""

    _parameter_constraints: ClassVar[Mapping[str, Parameter]]

    def _validate_params(self, *names: str) -> None:
        """Raise a ParameterError if a parameter has a wrong value, or excludes another; by names, check these alone."""
        if names:
            check_parameters(
                {name: getattr(self, name) for name in names},
                {name: self._parameter_constraints[name] for name in names},
            )
            return
        check_parameters(self.get_params(deep=False), self._parameter_constraints)
        self._check_combinations()

    def _check_combinations(self) -> None:
        """Raise if two parameters, each right by itself, cannot go together."""

    def _exclude(self, name: str, others: Mapping[str, bool], advice: str) -> None:
        """Raise, naming both, if one of the other parameters has the value that does not go with the one named."""
        for other, excluded in others.items():
            if excluded:
                raise ParameterError(
                    f"{name}={shown(getattr(self, name))} cannot be combined with {other}="
                    f"{shown(getattr(self, other))}: {advice}"
                )


def _is_collection(values: UserData) -> bool:
    """Return whether values can be listed again and again, in a certain order or in any, and are not text."""
    if isinstance(values, np.ndarray):
        return values.ndim > 0
    return isinstance(values, Collection) and not isinstance(values, str | bytes | Mapping | type)


def _are_labels(values: UserData) -> bool:
    return _is_collection(values) and len({*values}) >= 1


CLASSES = either(nothing, Constraint("a list of labels", _are_labels), advice="None takes the labels of y")
GAMMA = either(one_of("scale", "auto"), positive)
OPTIONAL_KERNEL = Parameter((*KERNEL.constraints, nothing), KERNEL.advice)
PAIRS = Constraint("pairs of numbers in a list", _is_collection)
STRUCTURE = either(one_of(*STRUCTURES), PAIRS)
ENGINE = either(
    nothing,
    has_methods(
        "each",
        "call",
        "sum",
        "load",
        "parts_of",
        "fetch",
        "status",
        text="a kernelcrf.distributed.DaskEngine",
    ),
)
SCHEMES = (*ALPHABETS, *ALIASES)

OF_ALL: Mapping[str, Parameter] = {
    "C": either(*PRIOR_VARIANCE.constraints, one_of("evidence")),
    "laplace": FLAG,
    "solver": SOLVER,
    "tol": POSITIVE,
    "max_iter": COUNT,
    "certify_full": FLAG,
    "warm_start": FLAG,
    "checkpoint": CHECKPOINT,
    "n_jobs": N_JOBS,
    "random_state": SEED,
    "verbose": either(whole(least=0), *FLAG.constraints),
}

OF_INPUTS: Mapping[str, Parameter] = {
    "kernel": KERNEL,
    "gamma": GAMMA,
    "degree": DEGREE,
    "coef0": COEF0,
    "optimize_kernel": FLAG,
    "n_restarts_optimizer": either(whole(least=0)),
    "n_components": either(whole(least=1), nothing, one_of("auto"), advice="None takes every distinct input"),
    "pivots": PIVOTS,
    **OF_ALL,
}

OF_KERNEL_ESTIMATORS: Mapping[str, Parameter] = {
    **OF_INPUTS,
    "label_kernel": LABEL_KERNEL,
    "class_weight": either(nothing, one_of("balanced"), instance_of(Mapping, text="a dict of labels and weights")),
}

OF_CHAINS: Mapping[str, Parameter] = {
    **OF_KERNEL_ESTIMATORS,
    "edge_kernel": OPTIONAL_KERNEL,
    "constraints": either(
        nothing, one_of(*SCHEMES), Constraint("a list of the pairs of labels (from, to) that are legal", _is_collection)
    ),
    "classes": CLASSES,
    "decoding": either(one_of("viterbi", "marginal")),
    "hash_features": HASH_FEATURES,
    "engine": ENGINE,
}

OF_NETWORKS: Mapping[str, Parameter] = {
    **OF_ALL,
    "structure_tol": either(real(least=0)),
    "min_gain": either(real(least=0), nothing),
}

OF_NETWORKS_WITH_INPUTS: Mapping[str, Parameter] = {
    **OF_NETWORKS,
    **OF_INPUTS,
    "C_label": PRIOR_VARIANCE,
    "edge_kernel": OPTIONAL_KERNEL,
}
