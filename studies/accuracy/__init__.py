"""Measure kernelcrf and its baselines on public data; the results are in docs/results."""
