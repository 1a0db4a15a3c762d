"""Models of CRFsuite as ChainCRF and back, beside python-crfsuite: equal labels and equal marginals."""

import pickle
import random

import numpy as np
import pycrfsuite
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import kernelcrf
from kernelcrf import ChainCRF, GraphCRF, TemperatureScaling
from kernelcrf.crfsuite import CRFsuiteModel, StateWeights, TransitionWeights, read_model, write_model
from kernelcrf.datasets import make_sequences
from kernelcrf.penalties import ElasticNet
from kernelcrf.plotting import GapDisplay
from kernelcrf.preprocessing import PerToken
from kernelcrf.report import make_report

WORDS = ["the", "dog", "größe", "คำ", "😀", "", "a:b", "x=y", "tab\t", "back\\slash", "The"]


def token(rng):
    """A feature dict with everything that python-crfsuite accepts: strings, numbers, flags, lists, sets, dicts."""
    word = rng.choice(WORDS)
    features = {
        "word": word,
        "bias": 1.0,
        "size": rng.uniform(-2, 2),
        "upper": rng.random() < 0.5,
        "count": rng.randint(0, 3),
        "parts": rng.sample(WORDS, 2),
        "kinds": set(rng.sample(["x", "y", "z"], 2)),
        "next": {"word": rng.choice(WORDS), "deep": {"value": rng.random(), "tag": rng.choice("AB")}},
    }
    return {name: features[name] for name in rng.sample(list(features), rng.randint(1, len(features)))}


def data(seed, n=40, lists=False):
    rng = random.Random(seed)
    X = [[rng.sample(WORDS, 3) if lists else token(rng) for _ in range(rng.randint(1, 6))] for _ in range(n)]
    return X, [[rng.choice(["B-é", "A", "O"]) for _ in x] for x in X]


def trained(path, X, y, **settings):
    trainer = pycrfsuite.Trainer("lbfgs", verbose=False)
    for xs, ys in zip(X, y, strict=True):
        trainer.append(xs, ys)
    trainer.set_params({"max_iterations": 30, **settings})
    trainer.train(str(path))
    return path


def tagger_of(path):
    tagger = pycrfsuite.Tagger()
    tagger.open(str(path))
    return tagger


def assert_same_answers(crf, path, X):
    """Both libraries predict the same labels, and marginals within 1e-9."""
    tagger = tagger_of(path)
    assert crf.classes_.tolist() == tagger.labels()
    for x, labels, marginals in zip(X, crf.predict(X), crf.predict_marginals(X), strict=True):
        assert tagger.tag(x) == labels.tolist()
        for t, row in enumerate(marginals):
            assert {label: tagger.marginal(label, t) for label in row} == pytest.approx(row, abs=1e-9)


@pytest.mark.parametrize("lists", [False, True], ids=["dicts", "lists"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"c1": 0.3, "c2": 0.01},
        {"feature.possible_states": True, "feature.possible_transitions": True},
        {"feature.minfreq": 3},
        {"c1": 1e4},
    ],
    ids=["plain", "elastic", "all", "frequent", "nothing left"],
)
def test_a_loaded_model_answers_as_python_crfsuite(settings, lists, tmp_path):
    X, y = data(0, lists=lists)
    path = trained(tmp_path / "a.crfsuite", X, y, **settings)
    crf, new = kernelcrf.load(path), data(1, lists=lists)[0]
    assert_same_answers(crf, path, X + new)
    crf.save(tmp_path / "b.crfsuite")
    assert (tmp_path / "b.crfsuite").read_bytes() == path.read_bytes()
    for again in (pickle.loads(pickle.dumps(crf)), saved_and_loaded(crf, tmp_path / "a.kcrf")):
        assert_same_answers(again, path, new)
        assert again.certificate_.status == "imported"


def saved_and_loaded(crf, path):
    crf.save(path)
    return kernelcrf.load(path)


def random_model(seed):
    """A model of CRFsuite with random pairs and weights, whose labels are in no order."""
    rng = np.random.default_rng(seed)
    L, n = int(rng.integers(1, 6)), int(rng.integers(1, 30))
    kept = rng.random((n, L)) < 0.4
    kept[np.arange(n), rng.integers(L, size=n)] = True
    steps = rng.random((L, L)) < 0.5
    labels = [f"L{k}" for k in rng.permutation(L)]
    return CRFsuiteModel(
        labels,
        [f"w:{k}" for k in range(n)],
        StateWeights(*np.nonzero(kept), rng.normal(scale=3, size=kept.sum())),
        TransitionWeights(*np.nonzero(steps), rng.normal(scale=3, size=steps.sum())),
    )


@pytest.mark.few(5)
@pytest.mark.parametrize("seed", range(20))
def test_random_models(seed, tmp_path):
    model, rng = random_model(seed), random.Random(seed)
    write_model(model, tmp_path / "a.crfsuite")
    X = [[{"w": str(rng.randrange(40)), "w:3": rng.gauss(0, 1)} for _ in range(rng.randint(1, 9))] for _ in range(5)]
    crf = kernelcrf.load(tmp_path / "a.crfsuite")
    assert_same_answers(crf, tmp_path / "a.crfsuite", [*X, [[], ["unknown"]], [["w:1", "w:1", "w:2"]]])
    crf.save(tmp_path / "b.crfsuite")
    assert (tmp_path / "b.crfsuite").read_bytes() == (tmp_path / "a.crfsuite").read_bytes()


@pytest.mark.parametrize("lists", [False, True], ids=["dicts", "lists"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"penalty": ElasticNet(0.3)},
        {"weights": "all"},
        {"weights": ("observed", "observed")},
        {"weights": 3},
        {"label_kernel": "centred"},
    ],
    ids=str,
)
def test_python_crfsuite_answers_as_a_fitted_model(settings, lists, tmp_path):
    X, y = data(2, lists=lists)
    crf = ChainCRF(C=1.0, **settings).fit(X, y)
    crf.save(tmp_path / "a.crfsuite")
    new = data(3, lists=lists)[0]
    assert_same_answers(crf, tmp_path / "a.crfsuite", X + new)
    assert_same_answers(kernelcrf.load(tmp_path / "a.crfsuite"), tmp_path / "a.crfsuite", new)
    model = read_model(tmp_path / "a.crfsuite")
    assert (model.state.weights != 0).all()
    assert (model.transitions.weights != 0).all()
    assert len(model.transitions.weights) == np.count_nonzero(crf.transitions_)
    assert len(model.attributes) == np.count_nonzero(crf.coef_.any(axis=1))


def test_names_of_features_are_those_of_crfsuite(tmp_path):
    X, y = data(4)
    theirs = read_model(trained(tmp_path / "a.crfsuite", X, y))
    crf = ChainCRF(C=1.0).fit(X, y)
    assert set(theirs.attributes) == set(crf.get_feature_names_out())


def test_a_loaded_model_says_that_it_was_not_fitted_here(tmp_path):
    X, y = data(5)
    crf = kernelcrf.load(trained(tmp_path / "a.crfsuite", X, y))
    assert (crf.certificate_.status, crf.certificate_.is_certified, crf.n_iter_) == ("imported", False, 0)
    assert np.isnan([crf.certificate_.objective, crf.C_]).all()
    assert "imported" in crf._repr_html_inner()
    page = make_report(crf, X, y)
    assert "The weights were read from a file of another library, so they have no certificate." in page
    with pytest.raises(ValueError, match="status 'imported', so that it has no curve"):
        GapDisplay.from_estimator(crf)
    with pytest.raises(AttributeError, match="fit with laplace=True"):
        crf.log_marginal_likelihood()


def test_a_loaded_model_has_all_answers_of_a_chain_crf(tmp_path):
    X, y = data(9)
    crf = kernelcrf.load(trained(tmp_path / "a.crfsuite", X, y))
    x = X[:1]
    ((labels, log_p),) = crf.distribution(x).k_best(1)[0]
    assert labels.tolist() == crf.predict(x)[0].tolist()
    assert crf.log_prob(x, [labels]) == pytest.approx([log_p])
    assert crf.distribution(x).sample(3, random_state=0)[0].shape == (3, len(x[0]))
    assert (crf.distribution(X).entropy() >= 0).all()
    assert crf.explain(x[0], 0).label == labels[0]
    assert set(crf.top_features(2)["label"]) == set(crf.classes_)
    assert crf.transition_table().shape == (3, 3)
    assert len(crf.select_for_labelling(X, 3, random_state=0)) == 3
    cooler = TemperatureScaling(crf).fit(X, y).estimator_
    again = saved_and_loaded(cooler, tmp_path / "a.kcrf")
    np.testing.assert_array_equal(again.predict_proba(x)[0], cooler.predict_proba(x)[0])


def test_names_that_are_not_utf_8(tmp_path):
    none = np.empty(0, int)
    state = StateWeights(np.array([0, 1]), np.array([0, 1]), np.array([1.0, 2.0]))
    model = CRFsuiteModel(["A", "B"], ["latin \udce9", "b"], state, TransitionWeights(none, none, np.empty(0)))
    write_model(model, tmp_path / "a.crfsuite")
    crf = kernelcrf.load(tmp_path / "a.crfsuite")
    assert crf.predict([[["b"], ["latin \udce9"]]])[0].tolist() == ["B", "A"]
    crf.save(tmp_path / "b.crfsuite")
    assert (tmp_path / "b.crfsuite").read_bytes() == (tmp_path / "a.crfsuite").read_bytes()
    assert saved_and_loaded(crf, tmp_path / "a.kcrf").predict([[["b"]]])[0].tolist() == ["B"]


@pytest.mark.parametrize("C", [1.0, "auto", "evidence"])
def test_a_fit_may_start_from_a_loaded_model(C, tmp_path):
    X, y = data(6, lists=True)
    crf = kernelcrf.load(trained(tmp_path / "a.crfsuite", X, y, **{"feature.possible_transitions": True}))
    crf.set_params(C=C, warm_start=True, tol=1e-6).fit(X, y)
    fresh = ChainCRF(C=crf.C_, tol=1e-6, classes=crf.classes_.tolist()).fit(X, y)
    assert crf.certificate_.status == "optimal"
    assert crf.certificate_.objective == pytest.approx(fresh.certificate_.objective, rel=1e-5)


VECTORS = make_sequences(10, random_state=0)
DICTS = data(7)


@pytest.mark.parametrize(
    ("crf", "X", "y", "said"),
    [
        (ChainCRF("rbf", C=1.0), *DICTS, "its kernel is rbf: expected the linear kernel"),
        (ChainCRF(C=1.0, inputs={"a": "linear"}), *DICTS, "it has the inputs 'a': expected one input without a name"),
        (ChainCRF(C=1.0, constraints=[("A", "O")]), [[["a"], ["b"]]] * 3, [["A", "O"]] * 3, "it has constraints"),
        (ChainCRF("linear", C=1.0, fit_intercept=False), VECTORS.X, VECTORS.y, "its inputs are numbers without names"),
        (ChainCRF(C=1.0, hash_features=2**8), *DICTS, "its features are hashed: expected hash_features=None"),
        (ChainCRF(C=1.0), [[["a"], ["b"]]] * 3, [[0, 1]] * 3, "it has the label 0: expected strings"),
        (ChainCRF(C=1.0), [[["a\0"], ["b"]]] * 3, [["A", "B"]] * 3, "expected names without NUL"),
    ],
)
def test_models_that_crfsuite_does_not_have_are_refused(crf, X, y, said, tmp_path):
    crf.fit(X, y)
    with pytest.raises(ValueError, match=said):
        crf.save(tmp_path / "a.crfsuite")
    assert not (tmp_path / "a.crfsuite").exists()


def test_other_estimators_are_refused(tmp_path):
    pipe = make_pipeline(PerToken(StandardScaler()), ChainCRF("linear", C=1.0)).fit(VECTORS.X, VECTORS.y)
    graphs = [(x[:3], np.array([[0, 1]])) for x in VECTORS.X]
    network = GraphCRF("linear", C=1.0).fit(graphs, [labels[:3] for labels in VECTORS.y])
    for model in (pipe, network):
        with pytest.raises(ValueError, match="cannot be written as a model of CRFsuite: expected a ChainCRF"):
            kernelcrf.save(model, tmp_path / "a.crfsuite")
    with pytest.raises(ValueError, match="a GraphCRF cannot be written as a model of CRFsuite"):
        network.save(tmp_path / "a.crfsuite")


def test_a_model_of_an_earlier_version_is_refused(tmp_path):
    """Names with "=" between name and value would be other attributes to python-crfsuite."""
    crf = ChainCRF(C=1.0).fit(*DICTS)
    crf.model_.reader.vectorizer.separator = "="
    with pytest.raises(ValueError, match="names such as 'word=the', as in files of earlier versions"):
        crf.save(tmp_path / "a.crfsuite")


def test_the_content_decides_what_is_loaded(tmp_path):
    X, y = data(8)
    path = trained(tmp_path / "a.kcrf", X, y)
    assert_same_answers(kernelcrf.load(path), path, X)
    (tmp_path / "b.crfsuite").write_bytes(path.read_bytes()[:100])
    (tmp_path / "c.crfsuite").write_text("A\tw=the\n")
    with pytest.raises(kernelcrf.ModelFileError, match="not a model file of CRFsuite, or a damaged one"):
        kernelcrf.load(tmp_path / "b.crfsuite")
    with pytest.raises(kernelcrf.ModelFileError, match="not a model file that this version"):
        kernelcrf.load(tmp_path / "c.crfsuite")
