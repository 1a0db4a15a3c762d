"""Define the tasks of `accuracy.parsers`: data, folds and features of each parser, and the models that are compared.

Models read one of the inputs of a task: "own" are the features of the project; "more" are these and
`reference_features`, and "steps" have `references.signs` on the steps between tokens in addition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, TypeAlias

import numpy as np
from sklearn.model_selection import KFold

from kernelcrf import ChainCRF, Input
from kernelcrf.datasets import load_us_addresses
from kernelcrf.penalties import ElasticNet
from studies.accuracy import references
from studies.accuracy.baselines import CRFsuite
from studies.datasets import grobid_columns, grobid_templates, load_grobid, load_names, reference_features

Words: TypeAlias = Sequence[str]
Split: TypeAlias = tuple[np.ndarray, np.ndarray]

# Parserator, which trains usaddress and probablepeople, does not limit the iterations.
PARSERATOR = {"c1": 0.1, "c2": 0.01, "max_iterations": 2**31 - 1}
# Wapiti's defaults are 0.5 |theta|_1 and 0.0001 / 2 |theta|^2.
WAPITI = {"c1": 0.5, "c2": 0.00005, "max_iterations": 300}
C_OF_WAPITI = (1 / (2 * WAPITI["c2"]),)
OWN, MORE, STEPS = "own", "more", "steps"
CRFSUITE, CHAIN = "CRFsuite", "ChainCRF"
CHAIN_MORE = "ChainCRF, more signs"
CHAIN_STEPS, CHAIN_ALL = "ChainCRF, signs of steps", "ChainCRF, more signs, also of steps"
CHAIN_L1, STEPS_L1 = "ChainCRF, Wapiti's penalties", "ChainCRF, signs of steps, Wapiti's penalties"
CHOSEN, COMMITTEE = "the model chosen in each training set", "committee of our models"
TOLERANCE = 1e-2


@dataclass(frozen=True)
class Model:
    """Hold how a model is made, given C, which input it reads, and which values of C are tried."""

    make: Callable[[float | None], Any]
    inputs: str = OWN
    grid: tuple[float, ...] = ()


@dataclass(frozen=True)
class Task:
    """Hold the items of a parser, and the models that are compared on them.

    read : return the tokens and the labels of each item.
    inputs : functions from the tokens of an item to features, by name.
    splits : return the training and test items, given the number of items.
    published : a figure of the project, with the source of its features.
    """

    title: str
    read: Callable[[], tuple[list[Any], list[list[str]]]]
    inputs: Mapping[str, Callable[[Any], Any]]
    splits: Callable[[int], Sequence[Split]]
    models: Mapping[str, Model] = field(default_factory=dict)
    published: str = ""


def folds(n: int, n_splits: int, used: int) -> list[Split]:
    return list(KFold(n_splits, shuffle=True, random_state=0).split(np.zeros(n)))[:used]


# Models


def crfsuite(parameters: Mapping[str, Any], C: float | None) -> CRFsuite:
    return CRFsuite(**parameters)


def like_wapiti(l1: float | None) -> dict[str, Any]:
    """Return the parameters of a model with an L1 penalty: as many iterations as Wapiti's, since C bounds no gap."""
    return {} if l1 is None else {"penalty": ElasticNet(l1), "max_iter": WAPITI["max_iterations"]}


def chain(weights: Any, C: float | None, l1: float | None = None) -> ChainCRF:
    return ChainCRF("linear", C=C, tol=TOLERANCE, weights=weights, random_state=0, **like_wapiti(l1))


def chain_with_steps(C: float | None, l1: float | None = None) -> ChainCRF:
    inputs = {"tokens": Input("linear"), "steps": Input("linear", scores="steps")}
    observed = ("observed", "observed")
    return ChainCRF(inputs=inputs, C=C, tol=TOLERANCE, weights=observed, random_state=0, **like_wapiti(l1))


def with_dicts() -> dict[str, Model]:
    """Return the models of parsers whose features are dicts."""
    return {
        CRFSUITE: Model(partial(crfsuite, PARSERATOR)),
        CHAIN: Model(partial(chain, "all"), OWN, (1.0, 5.0)),
        CHAIN_MORE: Model(partial(chain, ("observed", "observed")), MORE, (1.0, 3.0)),
        CHAIN_ALL: Model(chain_with_steps, STEPS, (1.0, 3.0)),
    }


def with_lists(parameters: Mapping[str, Any], grid: tuple[float, ...], l1: bool) -> dict[str, Model]:
    """Return the models of parsers whose features are lists of names; those with an L1 penalty take long."""
    found = {
        CRFSUITE: Model(partial(crfsuite, parameters)),
        CHAIN: Model(partial(chain, ("observed", "observed")), OWN, grid),
        CHAIN_STEPS: Model(chain_with_steps, STEPS, grid),
    }
    of_l1 = {
        CHAIN_L1: Model(partial(chain, ("observed", "observed"), l1=WAPITI["c1"]), OWN, C_OF_WAPITI),
        STEPS_L1: Model(partial(chain_with_steps, l1=WAPITI["c1"]), STEPS, C_OF_WAPITI),
    }
    return found | (of_l1 if l1 else {})


# Data


def words_of(data: Any) -> tuple[list[list[str]], list[list[str]]]:
    return [[token["word"] for token in item] for item in data.X], [labels.tolist() for labels in data.y]


def with_more(own: Callable[[Words], list[dict[str, Any]]]) -> dict[str, Callable[[Words], Any]]:
    """Return the inputs of a parser whose features are dicts."""

    def more(words: Words) -> list[dict[str, Any]]:
        pairs = zip(own(words), reference_features(words), strict=True)
        return [features | dict.fromkeys(names, True) for features, names in pairs]

    return {OWN: own, MORE: more, STEPS: lambda words: {"tokens": more(words), "steps": references.signs(words)}}


def usaddress_features(words: Words) -> list[dict[str, Any]]:
    import usaddress

    return usaddress.tokens2features(list(words))


def probablepeople_features(words: Words) -> list[dict[str, Any]]:
    import probablepeople

    return probablepeople.tokens2features(list(words))


def grobid_items(parser: Any) -> tuple[list[Any], list[list[str]]]:
    data = load_grobid(parser)
    return data.X, [labels.tolist() for labels in data.y]


def one_split(n: int, n_tested: int, n_trained: int | None) -> list[Split]:
    """Return the first `n_tested` of ten folds as test items, and the items of the others, or some, for training."""
    test = np.concatenate([test for _, test in folds(n, 10, n_tested)])
    rest = np.setdiff1d(np.arange(n), test)
    return [(rest if n_trained is None else np.random.default_rng(0).permutation(rest)[:n_trained], test)]


def grobid(
    title: str, parser: Any, splits: Callable[[int], Sequence[Split]], published: str = "", l1: bool = False
) -> Task:
    """Return the task of one of GROBID's parsers."""
    templates = cache(partial(grobid_templates, parser))

    def own(tokens: Any) -> list[list[str]]:
        return templates().features([grobid_columns(tokens, parser)])[0]

    def steps(tokens: Any) -> dict[str, Any]:
        return {"tokens": own(tokens), "steps": references.signs([token["word"] for token in tokens])}

    models = with_lists(WAPITI, (1.0, 10.0), l1)
    return Task(title, partial(grobid_items, parser), {OWN: own, STEPS: steps}, splits, models, published)


def names(subset: Any) -> tuple[list[list[str]], list[list[str]]]:
    return words_of(load_names(subset))


five_folds, three_folds = (partial(folds, n_splits=5, used=used) for used in (5, 3))
three_tenths = partial(one_split, n_tested=3, n_trained=None)
TASKS: dict[str, Task] = {
    "usaddress": Task(
        "usaddress: US addresses",
        lambda: words_of(load_us_addresses("train")),
        with_more(usaddress_features),
        five_folds,
        with_dicts(),
    ),
    "person": Task(
        "probablepeople: names of people",
        partial(names, "person"),
        with_more(probablepeople_features),
        three_folds,
        with_dicts(),
    ),
    "company": Task(
        "probablepeople: names of companies",
        partial(names, "company"),
        with_more(probablepeople_features),
        three_folds,
        with_dicts(),
    ),
    "date": grobid("GROBID: dates", "date", five_folds, "98.33"),
    "citation names": grobid("GROBID: names in citations", "citation names", three_tenths),
    "header names": grobid("GROBID: names of authors", "header names", three_tenths, l1=True),
    "affiliation": grobid("GROBID: affiliations", "affiliation", three_tenths, "85.87"),
    "citation": grobid("GROBID: citations", "citation", partial(one_split, n_tested=1, n_trained=2000), "94.48"),
}
