"""Measure what the documentation claims: accuracy, speed and reliability; `python -m studies` lists and runs all."""
