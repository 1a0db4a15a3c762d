"""Fits of chains for tests: terms, data and settings in one call."""

from kernelcrf import Input
from kernelcrf.basis.landmarks import Landmarks
from kernelcrf.engines.local import LocalEngine
from kernelcrf.fitting.corpus import Problem
from kernelcrf.fitting.fit import Settings, fit
from kernelcrf.score.cliques import STEPS
from kernelcrf.score.terms import NamedInput, chain_terms

OF_TERMS = ("C", "C_edge", "C_bias", "label_kernel")


def of_tokens_and_steps(kernel="auto", of_steps="rbf", **settings):
    """Return inputs of ChainCRF with which tokens and transitions depend on whole sequences."""
    return {"tokens": Input(kernel, **settings), "steps": Input(of_steps, scores="steps", **settings)}


def chain_problem(data, kernel, of_steps=None, C=1.0, **terms):
    inputs = {} if of_steps is None else {"steps": NamedInput(of_steps, C, STEPS)}
    return Problem(chain_terms(getattr(data, "n_labels", 3), kernel, C=C, inputs=inputs, **terms), data)


def fit_chain(data, kernel, of_steps=None, *, start=None, n_jobs=1, **settings):
    terms = {name: settings.pop(name) for name in OF_TERMS if name in settings}
    problem = chain_problem(data, kernel, of_steps, **terms)
    asked = settings.pop("n_components", None), settings.pop("rule", "auto"), settings.pop("features", "auto")
    settings["landmarks"] = Landmarks(*asked)
    return fit(problem, Settings(**settings, engine=LocalEngine(n_jobs)), start)
