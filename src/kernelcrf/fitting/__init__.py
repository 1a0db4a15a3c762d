"""Fitting a problem: its data, basis, weights, certificate, evidence and checkpoints."""
