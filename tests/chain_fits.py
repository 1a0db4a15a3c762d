"""Fits of chains for tests: terms, data and settings in one call."""

from kernelcrf.engines.local import LocalEngine
from kernelcrf.fitting.corpus import Problem
from kernelcrf.fitting.fit import Settings, fit
from kernelcrf.score.terms import chain_terms

OF_TERMS = ("C", "C_edge", "C_bias", "label_kernel")


def chain_problem(data, kernel, edge_kernel=None, **terms):
    return Problem(chain_terms(data.n_labels, kernel, edge_kernel, **terms), data)


def fit_chain(data, kernel, edge_kernel=None, *, start=None, n_jobs=1, **settings):
    terms = {name: settings.pop(name) for name in OF_TERMS if name in settings}
    problem = chain_problem(data, kernel, edge_kernel, **terms)
    return fit(problem, Settings(**settings, engine=LocalEngine(n_jobs)), start)
