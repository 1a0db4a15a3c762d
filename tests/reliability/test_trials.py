"""The trials of `python -m studies reliability` whose quick versions are tests elsewhere, at full length."""

import argparse
import importlib

import pytest


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["numerics", "concurrency", "interruption"])
def test_no_trial_fails(name):
    module = importlib.import_module(f"trials.{name}")
    for trial in module.trials(argparse.Namespace(**module.OPTIONS)):
        assert trial.times
        assert trial.failures == []
