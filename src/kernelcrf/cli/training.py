"""Run `kernelcrf fit`, which fits a model to labelled sequences and writes the model to a file."""

from __future__ import annotations

import inspect
import json
import math
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import PurePath
from typing import Any

import typer

from kernelcrf import ChainCRF, Input, load
from kernelcrf.answers.summary import CHOICE_OF_C, describe_C, summarise, text_of
from kernelcrf.arrays import UserData, is_sparse
from kernelcrf.basis.landmarks import landmarks_from_config
from kernelcrf.cli.files import (
    SEPARATOR,
    check_apart,
    check_overwrite,
    inputs,
    is_model,
    labels_of,
    place_of,
    read_templates,
)
from kernelcrf.cli.outcome import echo
from kernelcrf.estimators.input import OF_ONE_INPUT
from kernelcrf.fitting.corpus import HELD_OUT
from kernelcrf.fitting.sequences import PIECE
from kernelcrf.formats import FormatError, Record, Templates, format_of, read
from kernelcrf.formats.streams import display_name
from kernelcrf.formats.token_lines import TokenLines
from kernelcrf.graphs.structure import Chains
from kernelcrf.kernels.gamma import resolve_kernel
from kernelcrf.kernels.inputs import InputKernel
from kernelcrf.kernels.named_kernels import NAMED
from kernelcrf.kernels.polynomial import Polynomial
from kernelcrf.metrics import are_spans, span_f1
from kernelcrf.penalties import penalty_from_config
from kernelcrf.persistence.crfsuite.model_file import OTHER_PROGRAMS
from kernelcrf.readers.constraints import ConstraintError, check_legal, legal_labelings
from kernelcrf.readers.labels import LabelReader, flat_labels
from kernelcrf.rules import C_from_config
from kernelcrf.score.cliques import STEPS, TOKENS
from kernelcrf.solvers.loop import INTERRUPTED
from kernelcrf.solvers.restarts import solver_from_config
from kernelcrf.solvers.stopping import StoppingRule
from kernelcrf.validation import shown

SEARCH_TOL, SEARCH_ITERATIONS = 1e-3, 30
# Parameters that may be objects, each with the function that returns the object of a dict.
OBJECTS: dict[str, Callable[[dict[str, Any]], object]] = {
    "C": C_from_config,
    "kernel": lambda config: Polynomial(**config),
    "n_components": landmarks_from_config,
    "penalty": lambda config: penalty_from_config({"penalty": config}),
    "solver": solver_from_config,
}
FEW = "there are fewer than five sequences, too few to hold some out"
# Advice of the library, as regular expressions, and the same advice for the shell.
IN_SHELL = (
    (r"increase max_iter or tol", "pass a larger --max-iter or --tol"),
    (r"so increase tol, or pass float64 inputs", "so pass a larger --tol, or vectors of float64"),
    (r"above tol=", "above --tol "),
    (r"may exceed tol=", "may exceed --tol "),
    (r"Scale the columns: put .* in a Pipeline", "Scale the columns before you write the file"),
    (r"pass (gamma|C) as a number", r"pass a number as --\1"),
)


def fit(
    data: str,
    model: str,
    format: str | None,
    templates: str | None,
    dev: str | None,
    prior: str | None,
    settings: list[str] | None,
    **named: object,
) -> None:
    """Fit a model to the sequences of a file and save it; show progress if standard error is a terminal.

    dev : a file of held-out sequences, on which C is chosen; None if there is no such file.
    prior : the file of a model that is updated with the sequences, or None. Its templates are used.
    settings : strings "NAME=VALUE" from the option --set, which set parameters of ChainCRF.
    named : parameters of ChainCRF from their separate options, such as --gamma.
    """
    started = time.perf_counter()
    check_apart(model, [data, templates, dev])
    format_of(data, format)
    check_overwrite(model, is_model, "a model")
    records = list(read(data, format))
    y = labels_of(records, "labels for training")
    before = None if prior is None else _read_prior(prior, templates, dev)
    made = read_templates(records[0], templates) if before is None else _templates_of(before, records[0], prior)
    parameters = named | {"prior": before} | _read_settings(settings or [])
    if made is not None and made.have_steps and "inputs" not in parameters:
        parameters["inputs"] = _inputs_with_steps(parameters)
    _check_kernels(parameters, records[0])
    other = next((name for suffix, name in OTHER_PROGRAMS.items() if model.endswith(suffix)), None)
    if other is not None:
        _check_for(other, model, parameters, records[0])
    crf = ChainCRF().set_params(**{"verbose": int(sys.stderr.isatty())} | parameters)
    weights = [record.weight for record in records]
    train = inputs(records, made), y, None if set(weights) == {1.0} else weights
    if dev is not None and crf.C != "auto":
        C = f"{crf.C:g}" if isinstance(crf.C, float) else crf.C
        raise typer.BadParameter(f"-C {C} cannot be combined with --dev, which chooses C: omit one of them")
    with _places(records, format_of(data, format), crf.constraints):
        if dev is None:
            caught = _fit(crf, train)
            if crf.C == "auto" and _are_few(records):
                crf.metadata_[CHOICE_OF_C] = {"C": crf.C_, "because": FEW}
        else:
            held_out = list(read(dev, format))
            held_out_labels = labels_of(held_out, "labels to choose C")
            with _places(held_out, format_of(dev, format), crf.constraints):
                _check_constraints(crf.constraints, held_out_labels, y)
            crf, caught = _climb(crf, train, inputs(held_out, made), held_out_labels)
            score = "F1 of spans" if are_spans(crf.classes_.tolist()) else "accuracy of tokens"
            by = f"{score} on {display_name(PurePath(dev).name)}"
            crf.metadata_[CHOICE_OF_C] = {"C": crf.C, "by": by}
    certificate, facts = crf.certificate_, summarise(crf)
    if made is not None:
        made.attach(crf)
    if isinstance(records[0].raw, TokenLines):
        crf.metadata_[SEPARATOR] = records[0].raw.separator
    # verbose is reset, so that the model file is the same with and without a terminal.
    crf.set_params(verbose=parameters.get("verbose", 0)).save(model)
    if made is not None and other is not None:
        warnings.warn(
            f"{model}: models of {other} cannot store templates: pass files of features to kernelcrf tag, made by "
            "kernelcrf convert with the same templates",
            stacklevel=1,
        )
    for warning in caught:
        warnings.warn(f"{model}: {_for_shell(str(warning.message))}", warning.category, stacklevel=1)
    width = "features" if crf.landmark_positions_ is None else "landmarks"
    chosen = f"; C={crf.C_:.3g}, {describe_C(facts)}" if describe_C(facts) else ""
    certified = f"{certificate.status}, without a certificate (labels are missing)"
    if certificate.is_certified:
        certified = f"within {certificate.relative_gap:.1e} of the optimum"
    echo(
        f"{model}: {len(records):,} sequences, {sum(map(len, records)):,} tokens, {len(crf.classes_)} labels, "
        f"{crf.coef_.shape[0]:,} {width}{chosen}; {certified}; {time.perf_counter() - started:.1f} s, "
        f"{text_of(facts['solver seconds'])} s of them in the solver of the last fit"
    )


def _read_prior(prior: str, templates: str | None, dev: str | None) -> ChainCRF:
    """Load the model file `prior`, whose model is updated; raise if --prior and another option exclude each other."""
    for option, value in (("--templates", templates), ("--dev", dev)):
        if value is not None:
            raise typer.BadParameter(
                f"--prior {prior} cannot be combined with {option} {value}: omit {option}. The model "
                "file has the templates, and also C if the model was fitted with --set laplace=diagonal"
            )
    before = load(prior)
    if not isinstance(before, ChainCRF):
        raise typer.BadParameter(f"--prior {prior} is a {type(before).__name__}: expected a model written by fit")
    return before


def _templates_of(before: ChainCRF, record: Record, prior: str | None) -> Templates | None:
    """Return the templates of the model `before`, which is updated; if there are none, raise if the record is text."""
    made = Templates.of(before)
    if made is None and record.kind == "text":
        raise typer.BadParameter(
            f"--prior {prior} has no templates, but {record.place} has text: pass a file of features, made by "
            "kernelcrf convert with the templates of the model"
        )
    return made


def _inputs_with_steps(parameters: Mapping[str, Any]) -> dict[str, Input]:
    """Return the inputs of templates that give features of tokens and of steps; parameters are those of tokens."""
    of_tokens = Input(**{name: parameters[name] for name in OF_ONE_INPUT})
    return {TOKENS: of_tokens, STEPS: Input("linear", scores=STEPS)}


def _are_few(records: Sequence[Record]) -> bool:
    """Return whether there are too few sequences to choose C on held-out data, even after long ones are divided."""
    return len(records) < HELD_OUT and sum(-(-len(record) // PIECE) for record in records) < HELD_OUT


def _for_shell(warning: str) -> str:
    """Replace the names of Python parameters in a warning by the options of the command."""
    for pattern, replacement in IN_SHELL:
        warning = re.sub(pattern, replacement, warning)
    return warning


def _check_kernels(parameters: Mapping[str, object], record: Record) -> None:
    """Raise if a kernel cannot take inputs of the record's kind, or if --gamma is given but no kernel uses it."""
    sparse = record.kind != "vectors" or is_sparse(record.x)
    inputs = parameters.get("inputs")
    given = [one.kernel for one in inputs.values()] if isinstance(inputs, Mapping) else [parameters["kernel"]]
    resolved = [resolve_kernel(kernel, sparse) for kernel in given]
    names = [one if isinstance(one, str) else repr(one) for one in resolved]
    for name, kernel in ((name, NAMED[name]) for name in names if name in NAMED):
        if sparse and not kernel.takes_sparse:
            kind = f"sparse {record.kind}" if record.kind == "vectors" else record.kind
            others = ", ".join(other for other, one in NAMED.items() if one.takes_sparse)
            raise typer.BadParameter(
                f"--kernel {name} needs dense vectors, but the file has {kind}: choose from {others}"
            )
    if parameters["gamma"] != "scale" and not any(InputKernel(one).reads_gamma for one in resolved):
        raise typer.BadParameter(
            f"--gamma {parameters['gamma']} has no effect, because the kernel is {names[0]}: omit --gamma, or choose "
            f"--kernel {' or '.join(name for name, kernel in NAMED.items() if kernel.reads_gamma)}"
        )


def _check_for(other: str, model: str, parameters: Mapping[str, object], record: Record) -> None:
    """Raise before a fit if its result could not be written as a model of the program `other`."""
    kernel = resolve_kernel(parameters["kernel"], record.kind != "vectors")
    reasons = {
        f"--kernel {kernel}": not InputKernel(kernel).is_linear,
        "--constraints": parameters["constraints"] is not None,
        "inputs, or templates of steps": "inputs" in parameters,
        "--set hash_features": parameters.get("hash_features") is not None,
        "vectors": record.kind == "vectors",
    }
    for reason, applies in reasons.items():
        if applies:
            raise typer.BadParameter(
                f"{model}: models of {other} cannot store {reason}: pass the name of a .kcrf file, or omit {reason}"
            )


@contextmanager
def _places(records: Sequence[Record], format: str, constraints: object) -> Iterator[None]:
    """In a `with` block, add the file and the line to errors about labels that break the constraints."""
    try:
        yield
    except ConstraintError as error:
        place = error.place or _find_label(error.label, records)
        if place is None:
            raise
        i, t = place
        said = f"the label {shown(error.label)} does not follow" if error.place is None else f"{error.reason} by"
        raise FormatError(
            f"{place_of(records[i], t, format)}: {said} --constraints {constraints}: correct the label, choose other "
            "constraints, or omit them"
        ) from None


def _check_constraints(constraints: UserData, y: list[Sequence[object]], others: list[Sequence[object]]) -> None:
    """Raise if the labels y break the constraints; the constraints may also contain labels that only `others` has."""
    if constraints is not None:
        chains = Chains.from_lengths(list(map(len, y)))
        tokens = flat_labels(y, chains)
        labels = LabelReader.fit(chain(tokens, *others))
        legal = legal_labelings(constraints, labels.classes)
        check_legal(legal, chains, labels.encode(tokens, chains)[0], labels.classes)


def _find_label(label: object, records: Sequence[Record]) -> tuple[int, int] | None:
    """Return the indices (sequence, token) of the first token with this label, or None if no token has it.

    A token with a set of labels has each label of the set.
    """
    places = (
        (i, t)
        for i, record in enumerate(records)
        for t, token_label in enumerate(record.labels or ())
        if token_label == label or (isinstance(token_label, set) and label in token_label)
    )
    return next(places, None)


def _fit(crf: ChainCRF, train: tuple[UserData, ...]) -> list[warnings.WarningMessage]:
    """Fit `crf` to the tuple `train` of inputs, labels and weights; return the warnings that the fit issued."""
    with warnings.catch_warnings(record=True) as caught:
        crf.fit(*train)
    if crf.certificate_.status == INTERRUPTED:
        raise KeyboardInterrupt
    return caught


def _climb(
    crf: ChainCRF, train: tuple[UserData, ...], X: UserData, y: UserData
) -> tuple[ChainCRF, list[warnings.WarningMessage]]:
    """Fit with C = 1, and with larger or smaller powers of 10 while the score on X and y increases.

    Print a table of the scores. Then fit with the best C, and return the model and the warnings of this last fit. The
    score is F1 if the labels are spans, else the fraction of correct tokens. Only the last fit uses the tolerance of
    `crf`; the others stop earlier, because the score hardly changes near the optimum. Each fit starts from the
    vocabulary and the weights of the previous fit.
    """
    best, highest, wanted = 1.0, -math.inf, {"tol": crf.tol, "max_iter": crf.max_iter}
    crf.set_params(warm_start=True, tol=max(crf.tol, SEARCH_TOL), max_iter=_search_limit(crf.max_iter))
    powers = [0, 1, 2, 3, 4]
    while powers:
        power, started = powers.pop(0), time.perf_counter()
        _fit(crf.set_params(C=10.0**power), train)
        is_span = are_spans(crf.classes_.tolist())
        score = float(span_f1(y, crf.predict(X), zero_division=0)) if is_span else crf.score(X, y)
        if power == 0:
            echo(f"{'C':>8}  {'span F1' if is_span else 'accuracy'}  seconds")
        echo(f"{crf.C:>8g}  {score:8.4f}  {time.perf_counter() - started:7.1f}")
        if score > highest:
            best, highest = 10.0**power, score
        else:
            powers = [-1, -2, -3, -4] if power == 1 else []
    echo(f"the last fit, with C = {best:g}, goes to tol = {crf.set_params(C=best, **wanted).tol:g}")
    caught = _fit(crf, train)
    return crf.set_params(warm_start=False), caught


def _search_limit(max_iter: int | StoppingRule) -> int | StoppingRule:
    """Return `max_iter`, but at most SEARCH_ITERATIONS, for fits that only compare values of C.

    A stopping rule is returned unchanged.
    """
    return min(max_iter, SEARCH_ITERATIONS) if isinstance(max_iter, int) else max_iter


def _read_settings(settings: list[str]) -> dict[str, object]:
    """Convert strings "NAME=VALUE" to a dict of parameters; a value that is not valid JSON is kept as a string."""
    known, parameters = set(inspect.signature(ChainCRF).parameters), dict[str, object]()
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or name not in known:
            raise typer.BadParameter(
                f"--set {setting}: expected NAME=VALUE with a parameter of ChainCRF: {', '.join(sorted(known))}"
            )
        parameters[name] = given = _read_value(value)
        if name == "inputs":
            parameters[name] = _read_inputs(setting, given)
        if name in OBJECTS and isinstance(given, dict):
            try:
                parameters[name] = OBJECTS[name](given)
            except (KeyError, TypeError, ValueError) as error:
                raise typer.BadParameter(f"--set {setting}: {error}") from None
    return parameters


def _read_inputs(setting: str, given: object) -> dict[str, Input]:
    """Return a dict from names to inputs; `given` has a kernel, or a dict of parameters of `Input`, for each name.

    setting : the whole setting, for the error message.
    """
    try:
        inputs = {str(name): _read_input(one) for name, one in given.items()}  # type: ignore[attr-defined]
    except (AttributeError, TypeError, ValueError):
        raise typer.BadParameter(
            f"--set {setting}: expected inputs such as "
            '{"tokens": "rbf", "steps": {"kernel": "rbf", "scores": "steps"}}'
        ) from None
    return inputs


def _read_input(given: UserData) -> Input:
    """Return an `Input`; `given` is its kernel, or a dict of its parameters."""
    parameters: dict[str, Any] = given if isinstance(given, dict) else {"kernel": given}
    objects = {name: OBJECTS[name](value) for name, value in parameters.items() if isinstance(value, dict)}
    return Input(**{**parameters, **objects})


def _read_value(value: str) -> object:
    """Parse a string as JSON, for example a number; return a string that is not JSON unchanged."""
    try:
        return json.loads(value)
    except ValueError:
        return value
