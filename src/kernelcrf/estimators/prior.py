"""The parameter `prior`: a fitted model, or its file, whose posterior is the prior of a new fit."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from kernelcrf.arrays import Labels
from kernelcrf.estimators.parameters import BOUNDARIES
from kernelcrf.fitting.earlier import Earlier
from kernelcrf.models.base import FittedModel
from kernelcrf.persistence import ModelFileError, local_copy, read
from kernelcrf.persistence.crfsuite.model_file import SUFFIX
from kernelcrf.persistence.error import CONTENT_ERRORS
from kernelcrf.score.terms import BIAS_TERM, END_TERM, START_TERM
from kernelcrf.validation import Constraint, ParameterError, either, nothing, one_line, path, shown

PRIOR = either(
    nothing,
    Constraint(
        "a fitted estimator of the same class", lambda value: isinstance(getattr(value, "model_", value), FittedModel)
    ),
    path,
    advice="fit the model first, or pass the file to which it was saved",
)


def model_of(prior: Any, estimator: Any, model_type: type) -> Any:
    """Return the fitted model that the parameter `prior` of an estimator stands for; return None if `prior` is None.

    prior : a fitted estimator, or the path of a model file.
    estimator : the class of the estimator that has the parameter. A file must contain a model of this class.
    model_type : the class of the fitted models of this estimator.
    """
    if prior is None:
        return prior
    name, model = estimator.__name__, getattr(prior, "model_", prior)
    if type(model) is model_type:
        return model
    if isinstance(model, FittedModel):
        raise ParameterError(f"prior={shown(prior)}: expected a fitted {name}, or the path of its file")
    try:
        with local_copy(prior) as copy:
            if os.fspath(prior).endswith(SUFFIX) and hasattr(estimator, "from_crfsuite"):
                return estimator.from_crfsuite(copy).model_
            content = read(copy)
        if content.config.get("estimator") not in [base.__name__ for base in estimator.__mro__]:
            raise ModelFileError(
                f"the file has a model of type {shown(content.config.get('estimator'))}: expected {name}"
            )
        return estimator.from_arrays(*content).model_
    except (OSError, *CONTENT_ERRORS) as error:
        raise ParameterError(
            f"prior={shown(prior)} cannot be read ({one_line(error, 120)}): expected a file that {name}.save wrote"
        ) from None


def earlier_of(model: FittedModel, labels: Labels, n_labels: int, n_columns: Callable[[str], int]) -> Earlier:
    """Return the prior that an earlier model determines for a fit.

    labels : for each label of the model, its index among the labels of the fit.
    n_labels : the number of labels of the fit.
    n_columns : a function from the name of an input of the fit to its number of columns.
    """
    inputs = {str(term.input) for term in model.layout.terms if term.input is not None}
    return Earlier(
        model.layout,
        model.theta,
        None if model.laplace is None else model.laplace.posterior,
        model.maps,
        model.kernels,
        labels,
        n_labels,
        {name: n_columns(name) for name in inputs},
    )


def check_terms(estimator: Any, model: FittedModel) -> None:
    """Raise if the fit lacks an intercept, scores of first and last labels, or constraints that the prior has."""
    known, given = {term.name for term in model.layout.terms}, getattr(estimator, "fit_intercept", True)
    lacks_ends = bool(known & {START_TERM, END_TERM}) and not isinstance(given, str)
    is_constrained = getattr(model, "legal", None) is not None
    lacks = {
        "fit_intercept": lacks_ends or (BIAS_TERM in known and not given),
        "constraints": is_constrained and not getattr(estimator, "constraints", None),
    }
    for name, is_lacking in lacks.items():
        if is_lacking:
            had = f"{name}={BOUNDARIES!r}" if name == "fit_intercept" and lacks_ends else name
            raise ParameterError(
                f"{name}={getattr(estimator, name)}, but the prior was fitted with {had}: expected the same in this "
                f"fit, because other weights of the prior depend on it. Set {name} as in the fit of the prior, or "
                "prior=None"
            )
