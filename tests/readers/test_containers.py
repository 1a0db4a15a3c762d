"""Every container is read by position: what is accepted gives the bits of `list`, what is refused is named."""

import re
import traceback
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from sklearn.base import clone

import held_data as held
from kernelcrf import ChainCRF, GraphCRF, KernelClassifier, MarkovNetwork, MultiLabelCRF, TemperatureScaling
from kernelcrf.basis import distinct_inputs
from kernelcrf.inference.loops import decoding, fused, scaled, tangents
from kernelcrf.metrics import flat_accuracy, log_loss, sequence_accuracy
from kernelcrf.solvers import ascent

RNG = np.random.default_rng(0)
SIZES = (3, 2, 4, 3, 2)
X = [RNG.normal(size=(size, 2)) for size in SIZES]
Y = [(x[:, 0] + 0.3 * x[:, 1] > 0).astype(int).tolist() for x in X]
WORDS = [[{"w": f"w{label}", "n": float(t)} for t, label in enumerate(labels)] for labels in Y]
SPARSE = [np.where(np.abs(x) > 0.3, x, 0.0) for x in X]
WEIGHTS = [1.0, 2.0, 0.5, 1.5, 1.0]
ROWS, LABELS = np.concatenate(X), np.concatenate(Y).tolist()
SETS = np.column_stack((LABELS, ROWS[:, 1] > 0)).astype(int)
GRAPHS = [(x, [[t, t + 1] for t in range(len(x) - 1)]) for x in X]

# Few iterations: the same inputs give the same bits at any point of a fit.
CHAIN, GRAPH, ROW = ChainCRF("linear", tol=0.3, C=1.0), GraphCRF("linear", tol=0.3), KernelClassifier("linear", tol=0.3)
SET, TABLE = MultiLabelCRF("linear", structure="full", tol=0.3), MarkovNetwork(structure="full", tol=0.3)


def bits(model, X, y, *, new=None, **options):
    """What a model says of X after a fit to X and y."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = clone(model).fit(X, y, **options)
        options = {name: value for name, value in options.items() if name != "sample_weight"}
        proba = model.predict_proba(X if new is None else new, **options)
        return [model.certificate_.objective, *map(np.asarray, proba)]


def same(one, other):
    return len(one) == len(other) and all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


REFERENCES = {
    "dense": (CHAIN, X, held.TABLES),
    "chains as graphs": (GRAPH, X, held.TABLES),
    "sparse": (CHAIN, SPARSE, held.SPARSE),
    "sparse chains as graphs": (GRAPH, SPARSE, held.SPARSE),
    "dicts": (CHAIN, WORDS, held.TOKENS),
}


def third(containers, outer):
    """All inner containers for a list, and every third for each other outer container: in turn, so that all occur."""
    names = list(containers)
    return names if outer == "list" else names[list(held.OUTER).index(outer) % 3 :: 3]


FEW = ("list", "objects", "shuffled Series", "own sequence")
SEQUENCES = [
    (family, outer, inner)
    for family, (*_, containers) in REFERENCES.items()
    for outer in (held.OUTER if family == "dense" else FEW)
    for inner in third(containers, outer)
]


@pytest.mark.filterwarnings("ignore:X has feature names, but .* was fitted without")
@pytest.mark.parametrize(("family", "outer"), sorted({(family, outer) for family, outer, _ in SEQUENCES}))
def test_sequences_in_any_container_are_those_of_a_list(family, outer):
    model, inputs, containers = REFERENCES[family]
    plain = [sp.csr_array(x) for x in inputs] if "sparse" in family else inputs
    expected = bits(model, list(plain), Y)
    fitted = clone(model).fit(list(plain), Y)
    for inner in third(containers, outer):
        given = held.OUTER[outer]([containers[inner](x) for x in inputs])
        assert same(bits(model, given, Y), expected), inner
        assert fitted.score(given, Y) == fitted.score(list(plain), Y)


def test_there_are_more_than_100_containers():
    assert len(SEQUENCES) + sum(len(third(held.LABELS, outer)) for outer in held.OUTER) > 100
    assert len(SEQUENCES) == len(set(SEQUENCES))


@pytest.mark.parametrize(
    ("model", "outer"), [*((CHAIN, outer) for outer in held.OUTER), *((GRAPH, outer) for outer in FEW)]
)
def test_labels_in_any_container_are_those_of_a_list(model, outer):
    expected, fitted = bits(model, X, Y), clone(model).fit(X, Y)
    for inner in third(held.LABELS, outer):
        given = held.OUTER[outer]([held.LABELS[inner](labels) for labels in Y])
        assert same(bits(model, X, given), expected), inner
        assert fitted.score(X, given) == fitted.score(X, Y)
        np.testing.assert_array_equal(fitted.log_prob(X, given), fitted.log_prob(X, Y))
        assert flat_accuracy(given, fitted.predict(X)) == flat_accuracy(Y, fitted.predict(X))


@pytest.mark.few
@pytest.mark.parametrize("lengths", held.LABELS)
@pytest.mark.parametrize("name", held.TABLES)
def test_flat_tokens_and_lengths_in_any_container(name, lengths):
    given = bits(CHAIN, held.TABLES[name](ROWS), LABELS, lengths=held.LABELS[lengths](list(SIZES)))
    assert same(given, bits(CHAIN, X, Y))


@pytest.mark.parametrize("name", held.LABELS)
def test_labels_of_flat_tokens_in_any_container(name):
    assert same(bits(CHAIN, ROWS, held.LABELS[name](LABELS), lengths=SIZES), bits(CHAIN, X, Y))


def compiled_versions():
    """The types of arguments that each loop has been compiled for."""
    modules = [fused, scaled, tangents, decoding, ascent, distinct_inputs]
    functions = [one for module in modules for one in vars(module).values() if hasattr(one, "nopython_signatures")]
    return {(function.__name__, signature.args) for function in functions for signature in function.nopython_signatures}


@pytest.mark.parametrize(("model", "make"), [(CHAIN, np.asarray), (CHAIN, sp.csr_array), (ROW, np.asarray)])
def test_compiled_code_has_no_versions_for_read_only_arrays(model, make):
    """Their last bits would depend on what was in the cache of compiled code when they were made."""
    rows, options = make(ROWS.copy()), {"lengths": SIZES} if model is CHAIN else {}
    weights = np.ones(len(SIZES) if model is CHAIN else len(ROWS))
    expected, before = bits(model, rows, LABELS, sample_weight=weights, **options), compiled_versions()
    for array in (rows.data, rows.indices, rows.indptr) if sp.issparse(rows) else (rows,):
        array.flags.writeable = False
    weights.flags.writeable = False
    assert same(bits(model, rows, LABELS, sample_weight=weights, **options), expected)
    assert compiled_versions() == before


ROW_MODELS = {"rows": (ROW, ROWS, LABELS), "sets": (SET, ROWS, SETS), "table": (TABLE, SETS.astype(float), None)}


@pytest.mark.parametrize("name", ROW_MODELS)
def test_rows_in_any_container_are_those_of_a_list(name):
    model, rows, labels = ROW_MODELS[name]
    expected = bits(model, rows, labels)
    for container in held.TABLES:
        given = held.TABLES[container](rows)
        assert same(bits(model, given, labels), expected), container
    for outer in held.OUTER:
        assert same(bits(model, held.OUTER[outer](rows.tolist()), labels), expected), outer
    if model is not TABLE:
        sparse = bits(model, sp.csr_array(rows), labels)
        for form, container in held.SPARSE.items():
            assert form == "list of rows" or same(bits(model, container(rows), labels), sparse), form


def test_labels_of_rows_in_any_container_are_those_of_a_list():
    expected, fitted = bits(ROW, ROWS, LABELS), clone(ROW).fit(ROWS, LABELS)
    for name, container in held.LABELS.items():
        assert same(bits(ROW, ROWS, container(LABELS)), expected), name
        assert fitted.score(ROWS, container(LABELS)) == fitted.score(ROWS, LABELS), name
    sets = bits(SET, ROWS, SETS)
    for name in ("array", "lists", "DataFrame", "Fortran", "tuples", "nothing masked"):
        assert same(bits(SET, ROWS, held.TABLES[name](SETS)), sets), name


WEIGHTED = {
    "chain": (CHAIN, X, Y),
    "graph": (GRAPH, GRAPHS, Y),
    "rows": (ROW, ROWS[:5], [0, 1, 0, 1, 1]),
    "sets": (SET, ROWS[:5], SETS[:5]),
    "table": (TABLE, SETS[:5], None),
}


@pytest.mark.parametrize("name", WEIGHTED)
def test_weights_in_any_container_are_those_of_a_list(name):
    model, inputs, labels = WEIGHTED[name]
    expected = bits(model, inputs, labels, sample_weight=WEIGHTS)
    for container in held.WEIGHTS.values():
        assert same(bits(model, inputs, labels, sample_weight=container(WEIGHTS)), expected)


def test_arrays_of_equal_sequences_are_lists():
    x, y = np.stack([X[0], X[3]]), np.array([Y[0], Y[3]])
    assert same(bits(CHAIN, x, y), bits(CHAIN, list(x), y.tolist()))
    assert same(bits(GRAPH, x, y), bits(GRAPH, list(x), y.tolist()))
    words = np.array([WORDS[0], WORDS[3]])
    assert same(bits(CHAIN, words, y), bits(CHAIN, [WORDS[0], WORDS[3]], y.tolist()))


def test_cross_validation_takes_a_shuffled_series():
    from sklearn.model_selection import cross_val_score

    many = [x for _ in range(4) for x in X]
    labels = [y for _ in range(4) for y in Y]
    order = RNG.permutation(len(many))
    given = pd.Series(held.objects(many), index=order), pd.Series(held.objects(labels), index=order[::-1])
    expected = cross_val_score(CHAIN, many, labels, cv=2)
    np.testing.assert_array_equal(cross_val_score(CHAIN, *given, cv=2), expected)


def test_calibration_and_metrics_go_by_position():
    fitted = clone(CHAIN).fit(X, Y)
    expected = TemperatureScaling(fitted).fit(X, Y).temperature_
    x, y = held.shuffled(X), held.shuffled([held.shuffled(labels) for labels in Y])
    assert TemperatureScaling(fitted).fit(x, y).temperature_ == expected
    proba = fitted.predict_proba(X)
    assert log_loss(y, held.shuffled(proba), held.shuffled([0, 1])) == log_loss(Y, proba, [0, 1])
    assert sequence_accuracy(y, held.shuffled(fitted.predict(X))) == sequence_accuracy(Y, fitted.predict(X))


def own_error(name, call, *, longest=420):
    """Call what must fail; check that the library itself says so, in one line that names the argument."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises((ValueError, TypeError)) as raised:
            call()
    text = str(raised.value)
    where = traceback.extract_tb(raised.value.__traceback__)[-1].filename
    assert "kernelcrf" in where, (where, text)
    assert re.search(rf"\b{name}\b", text), text
    assert "\n" not in text
    assert len(text) <= longest, text


BAD_TABLES = {
    "strings": np.array([["a", "b"], ["c", "d"]]),
    "NaN": np.full((2, 2), np.nan),
    "infinite": np.full((2, 2), np.inf),
    "complex": np.ones((2, 2), complex),
    "dates": np.zeros((2, 2), "M8[ns]"),
    "masked": np.ma.masked_array(np.ones((2, 2)), [[True, False], [False, False]]),
    "masked row": [np.ma.masked_array([1.0, 2.0], [True, False]), [1.0, 2.0]],
    "different widths": [[1.0, 2.0], [1.0]],
    "None": [[None, 1.0], [2.0, 3.0]],
    "NA": [[pd.NA, 1.0], [2.0, 3.0]],
    "objects": np.array([[object(), 1.0], [2.0, 3.0]]),
    "3-d": np.ones((2, 2, 2)),
    "frame of words": pd.DataFrame({"a": ["x", "y"], "b": ["x", "y"]}),
    "polars of words": pl.DataFrame({"a": ["x", "y"], "b": ["x", "y"]}),
    "long strings": [["x" * 10_000, 1.0], [1.0, 2.0]],
}
SAMPLES = {"chain": (CHAIN, X, Y), "graph": (GRAPH, GRAPHS, Y)}


@pytest.mark.parametrize("name", SAMPLES)
def test_refused_containers_of_sequences_are_named(name):
    model, inputs, labels = SAMPLES[name]
    fitted = clone(model).fit(inputs, labels)
    for make in held.refused(inputs).values():
        own_error("X", lambda make=make: clone(model).fit(make(), labels))
        own_error("X", lambda make=make: fitted.predict(make()))
        own_error("X", lambda make=make: clone(model).fit([*inputs[:4], make()], labels))
    for make in held.refused(labels).values():
        own_error("y", lambda make=make: clone(model).fit(inputs, make()))
        own_error("y", lambda make=make: fitted.score(inputs, make()))
        if not isinstance(make(), str):  # a string is the sequence of its letters
            own_error("y", lambda make=make: clone(model).fit(inputs, [*labels[:4], make()]))
    for bad in BAD_TABLES.values():
        given = (bad, [[0, 1]]) if model is GRAPH else bad
        own_error("X", lambda given=given: clone(model).fit([*inputs[:4], given], [*labels[:4], [0, 1]]))
        own_error("X", lambda given=given: fitted.predict([given]))
    for make in held.refused(SIZES).values() if model is CHAIN else ():
        own_error("lengths", lambda make=make: clone(model).fit(ROWS, LABELS, lengths=make()))


def test_refused_containers_of_rows_are_named():
    for model, rows, labels in ((ROW, ROWS, LABELS), (SET, ROWS, SETS), (TABLE, SETS, None)):
        fitted = clone(model).fit(rows, labels)
        say = fitted.predict if model is not TABLE else fitted.impute
        for kind, make in held.refused(rows.tolist()).items():
            if kind == "class":
                continue  # a class has no entries: scikit-learn's own checks of tags look at it first
            own_error("X", lambda make=make, model=model, labels=labels: clone(model).fit(make(), labels))
            own_error("X", lambda make=make, say=say: say(make()))
        if model is TABLE:
            continue
        for make in held.refused(labels).values():
            own_error("y", lambda make=make, model=model, rows=rows: clone(model).fit(rows, make()))
        for bad in BAD_TABLES.values():
            own_error("X", lambda bad=bad, model=model: clone(model).fit(bad, [0, 1]))
            own_error("X", lambda bad=bad, say=say: say(bad))
