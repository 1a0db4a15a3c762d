"""Fitting: training data, features, weights, certificates, evidence and checkpoints."""
