import itertools
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from chain_fits import fit_chain
from clusters import Inline
from kernelcrf.basis.recomputed_features import RecomputedFeatures
from kernelcrf.distributed.corpus import DistributedSequences
from kernelcrf.engines.local import LocalEngine
from kernelcrf.fitting.sequences import LabelledSequences
from kernelcrf.graphs.structure import Chains
from kernelcrf.kernels.inputs import InputKernel

RBF = InputKernel("rbf", gamma=0.5)


@pytest.fixture(scope="module", params=["dense", "sparse"])
def data(request):
    rng = np.random.default_rng(0)
    chains = Chains.from_lengths(rng.integers(0, 9, size=40))
    X = rng.normal(size=(60, 3))[rng.integers(60, size=chains.n_nodes)]
    labels = (np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] > 0).astype(np.int32) + (X[:, 2] > 0.8)
    rows = sp.csr_array(X) if request.param == "sparse" else X
    return LabelledSequences(rows, chains, labels.astype(np.int32), 3, weights=rng.uniform(0.5, 2, size=40))


def shared(data, n_parts=3):
    cluster = Inline(forgetful=False)
    cuts, offsets, parts = np.linspace(0, data.chains.n_samples, n_parts + 1).astype(int), data.chains.offsets, []
    for low, high in itertools.pairwise(cuts):
        nodes = slice(offsets[low], offsets[high])
        own = data.chains.part(low, high)
        weights = None if data.weights is None else data.weights[low:high]
        part = LabelledSequences(data.X[nodes], own, data.labels[nodes], 3, weights=weights)
        parts.append(cluster.call(replace, part))
    return DistributedSequences(cluster, parts)


def positions(fitted):
    return fitted.problem.corpus.positions(fitted.layout.terms[0], fitted.features["node"], LocalEngine(1))


@pytest.mark.few
@pytest.mark.parametrize(
    "settings",
    [
        {"n_components": 25, "rule": "random", "certify_full": True},
        {"n_components": 25, "certify_full": True},
        {"certify_full": True},
        {"of_steps": RBF, "n_components": 20, "rule": "random", "certify_full": True},
        {"n_components": "auto"},
        {"n_components": 25, "features": "recomputed", "certify_full": True},
        {"n_components": "auto", "features": "recomputed"},
        {"kernel": InputKernel("linear"), "C_bias": 1.0, "solver": "lbfgs"},
    ],
    ids=["random", "auto rule", "exact", "edges", "grown", "recomputed", "grown and recomputed", "linear"],
)
def test_a_fit_over_parts_is_that_of_all_data(data, settings):
    tol = 3e-2 if settings.get("n_components") == "auto" else 1e-9
    settings = {"kernel": RBF, "C": 2.0, "tol": tol, "random_state": 0, **settings}
    here, there = fit_chain(data, **settings), fit_chain(shared(data), **settings)
    assert there.certificate.objective == pytest.approx(here.certificate.objective, rel=1e-10)
    np.testing.assert_allclose(there.solution.theta, here.solution.theta, atol=1e-5)
    if here.certificate.gap_full is not None:
        assert there.certificate.gap_full == pytest.approx(here.certificate.gap_full, rel=1e-5, abs=1e-7)
    own, theirs = (positions(one) for one in (here, there))
    if own is None:
        assert theirs is None
    else:
        np.testing.assert_array_equal(theirs, own)


def test_features_are_recomputed_if_the_workers_lack_memory(data, monkeypatch):
    parts = shared(data)
    monkeypatch.setattr(parts.cluster, "fits", lambda n_bytes: False)
    fitted = fit_chain(parts, RBF, n_components=20, random_state=0)
    stored = fit_chain(data, RBF, n_components=20, random_state=0)
    assert all(isinstance(F, RecomputedFeatures) for F in parts.cluster.fetch(fitted.features["node"].F))
    assert fitted.certificate.objective == pytest.approx(stored.certificate.objective, rel=1e-10)


@pytest.mark.parametrize("features", ["stored", "recomputed"])
def test_a_fit_takes_up_an_earlier_one(data, features):
    shape = {
        "features": features,
        "n_components": 20,
        "rule": "random",
        "random_state": 0,
        "tol": 1e-8,
        "certify_full": True,
    }
    first = fit_chain(data, RBF, **shape)
    again = fit_chain(shared(data), RBF, **shape, start=first.end)
    assert again.solution.n_iter == 0
    assert again.certificate.gap_full == pytest.approx(first.certificate.gap_full, rel=1e-6)
    assert positions(again).shape == (first.maps["node"].n, 2)
