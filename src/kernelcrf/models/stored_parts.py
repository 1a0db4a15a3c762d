"""Convert parts of models to JSON values and arrays, and back: pairs, certificates, structure searches, posteriors."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np

from kernelcrf.arrays import Array, Arrays, Config
from kernelcrf.basis.pairs import Pairs
from kernelcrf.certificate import IMPORTED, NOT_FITTED, Certificate
from kernelcrf.fitting.curvature_diagonal import DiagonalPosterior
from kernelcrf.fitting.held_out import Trial
from kernelcrf.fitting.laplace import FactoredPosterior, Laplace, PartialPosterior, Posterior, SampledPosterior
from kernelcrf.fitting.structure_search import Candidate, Round, Search
from kernelcrf.persistence import ModelFileError
from kernelcrf.persistence.checks import check_factor, read_array, read_flag, read_number, read_pairs, read_text
from kernelcrf.solvers.loop import INTERRUPTED, OPTIMAL, STALLED, STATIONARY
from kernelcrf.solvers.stopping import STOPPING_RULES
from kernelcrf.validation import Constraint, either, shown

STATUSES = (OPTIMAL, STATIONARY, *STOPPING_RULES, STALLED, INTERRUPTED, *NOT_FITTED)


def plain(value: Any, name: str) -> Any:
    """Return the value in a form that JSON can store: arrays become lists. Raise TypeError if JSON cannot store it.

    name : the name of the value for the error message.
    """
    value = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        raise TypeError(
            f"{name}={shown(value)} cannot be written to a file: expected text, numbers, or lists and dicts of these. "
            "Change the value, or save the estimator with joblib.dump, which stores any object."
        ) from None
    return value


def _is_plain(value: Any, deepest: int = 100) -> bool:
    """Return whether JSON can store the value without changing it, except that tuples become lists.

    deepest : how many levels of nested lists and dicts are accepted.
    """
    if value is None or isinstance(value, str | bool | int | float):
        return True
    if isinstance(value, dict):
        return deepest > 0 and all(isinstance(k, str) and _is_plain(v, deepest - 1) for k, v in value.items())
    return deepest > 0 and isinstance(value, list | tuple) and all(_is_plain(one, deepest - 1) for one in value)


METADATA = either(
    Constraint(
        "a dict from names to plain values",
        lambda value: isinstance(value, dict) and _is_plain(value) and bool(json.dumps(value)),
    ),
    advice="a file can store text, numbers, True, False, None, and lists and dicts of these",
)


def certificate_from_config(config: Config) -> Certificate:
    """Return the certificate whose fields are in `config`, which was read from a model file."""
    if config["status"] not in STATUSES:
        raise ModelFileError(
            f"the certificate has status={shown(config['status'])}: expected one of {', '.join(STATUSES)}. The file "
            "may be damaged: use another copy of it"
        )
    certificate = Certificate(
        objective=read_number(config, "objective", finite=config["status"] not in NOT_FITTED),
        lower_bound=read_number(config, "lower_bound", finite=False),
        status=config["status"],
        gap_full=None if config["gap_full"] is None else read_number(config, "gap_full"),
        rounding=read_number(config, "rounding", least=0.0, finite=False),
    )
    if math.isnan(certificate.lower_bound):
        raise ModelFileError(
            "the certificate has lower_bound=nan: expected a number, or -Infinity. The file may be damaged: use "
            "another copy of it"
        )
    if certificate.status == OPTIMAL and not certificate.is_certified:
        raise ModelFileError(
            "the certificate is optimal without a lower bound: expected a finite number as lower_bound. The "
            "file may be damaged: use another copy of it"
        )
    return certificate


def n_records(config: Config) -> int:
    """Return how many records of its fit a model has: one for the start of the fit, and one per iteration.

    An imported model has none. The curves of a model, such as `gap_curve`, have one entry per record.

    config : the certificate and the number of iterations of the model.
    """
    return 0 if config["certificate"].status == IMPORTED else int(config["n_iter"]) + 1


def search_from_config(config: Config | None) -> Search | None:
    """Return the structure search whose fields are in `config`, which was read from a model file.

    Return None if `config` is None.
    """
    if config is None:
        return None
    rounds = tuple(
        Round(joined=_candidates(one, "joined"), **_numbers(one, "objective", "gap", "left_out"))
        for one in _read_list(config, "rounds")
    )
    return Search(rounds, _candidates(config, "absent"), read_number(config, "lower_bound", finite=False))


def read_trials(config: Config) -> tuple[Trial, ...]:
    """Return the trials in a model file: the models that the fit compared on held-out samples, with their scores."""
    stored = _read_list(config, "trials") if "trials" in config else []
    return tuple(
        Trial(
            kernel=None if one["kernel"] is None else read_text(one, "kernel"),
            gamma=None if one["gamma"] is None else read_number(one, "gamma"),
            C=tuple(read_number({"C": C}, "C") for C in _read_list(one, "C")),
            score=read_number(one, "score", finite=False),
            error=None if one["error"] is None else read_number(one, "error", finite=False),
            accuracy=None if one.get("accuracy") is None else read_number(one, "accuracy"),
            chosen=read_flag(one, "chosen"),
        )
        for one in stored
    )


def _candidates(config: Config, name: str) -> tuple[Candidate, ...]:
    stored = _read_list(config, name)
    return tuple(Candidate(read_text(one, "template"), **_numbers(one, "bound", "expected_gain")) for one in stored)


def _numbers(config: Config, *names: str) -> dict[str, float]:
    return {name: read_number(config, name, finite=False) for name in names}


def _read_list(config: Config, name: str) -> list[Any]:
    values = config[name]
    if not isinstance(values, list):
        raise ModelFileError(
            f"{name} of the model file is {shown(values)}: expected a list. The file may be damaged: use another copy "
            "of it"
        )
    return values


def posterior_arrays(posterior: Posterior) -> Arrays:
    """Return a dict of the arrays of a posterior for a model file. The mode is left out: it equals the weights."""
    if isinstance(posterior, PartialPosterior):
        arrays = {"partial.scale": posterior.scale, "partial.kept": posterior.kept.astype(np.int64)}
        return arrays | posterior_arrays(posterior.inner)
    if isinstance(posterior, FactoredPosterior):
        return {"posterior.scale": posterior.scale, "posterior.G": posterior.G}
    if isinstance(posterior, DiagonalPosterior):
        return {"posterior.deviations": posterior.scale}
    return {"posterior.drawn": posterior.drawn}


def pairs_to_arrays(name: str, pairs: Pairs | None) -> Arrays:
    """Return a dict of arrays with the pairs that have weights in the term `name`; it is empty if all pairs have them.

    Small numbers are stored as bytes.
    """
    if pairs is None:
        return {}
    arrays = {"counts": np.diff(pairs.pointers), "labels": pairs.labels}
    return {f"pairs.{name}.{key}": _shortest(array) for key, array in arrays.items()}


def _shortest(array: Array) -> Array:
    return array.astype(np.uint8 if array.max(initial=0) < 256 else np.int32)


def pairs_from_arrays(arrays: Arrays, name: str, n_labels: int) -> Pairs | None:
    """Return the pairs that have weights in the term called `name`, or None if all pairs have weights."""
    pairs = read_pairs(arrays, name, n_labels)
    return None if pairs is None else Pairs(*pairs, n_labels)


def read_laplace(config: Config | None, arrays: Arrays, theta: Array) -> Laplace | None:
    """Return the evidence and the posterior of the weights, as read from a model file.

    Return None if `config` is None, which means that they were not computed.

    theta : the weights of the model, which are the mode of the posterior.
    """
    if config is None:
        return None
    error, n_effective = _numbers(config, "error", "n_effective").values()
    evidence = Laplace(read_number(config, "log_evidence"), error, n_effective, None)
    if "posterior.deviations" in arrays:
        scale = read_array(arrays, "posterior.deviations", theta.shape, "f")
        return replace(evidence, posterior=DiagonalPosterior(theta, scale))
    if "partial.kept" not in arrays:
        return replace(evidence, posterior=_posterior(arrays, theta))
    kept = read_array(arrays, "partial.kept", (arrays["partial.kept"].size,), "i")
    if len(kept) and not (kept.min() >= 0 and kept.max() < len(theta)):
        raise ModelFileError(
            f"the tensor 'partial.kept' of the model file has indices from {kept.min()} to {kept.max()}: expected "
            f"indices from 0 to {len(theta) - 1}. The file may be damaged: use another copy of it"
        )
    inner = _posterior(arrays, theta[kept])
    if inner is None:
        raise ModelFileError(
            "the model file has the tensor 'partial.kept', but neither 'posterior.G' nor 'posterior.drawn': expected "
            "one of these two as well. The file may be damaged: use another copy of it"
        )
    scale = read_array(arrays, "partial.scale", theta.shape, "f")
    return replace(evidence, posterior=PartialPosterior(theta, scale, kept, inner))


def _posterior(arrays: Arrays, mode: Array) -> FactoredPosterior | SampledPosterior | None:
    if "posterior.G" in arrays:
        scale = read_array(arrays, "posterior.scale", mode.shape, "f")
        G = read_array(arrays, "posterior.G", mode.shape * 2, "f")
        check_factor("posterior.G", G)
        return FactoredPosterior(mode, scale, G)
    if "posterior.drawn" in arrays:
        drawn = arrays["posterior.drawn"]
        return SampledPosterior(mode, read_array(arrays, "posterior.drawn", (len(drawn), len(mode)), "f"))
    return None
