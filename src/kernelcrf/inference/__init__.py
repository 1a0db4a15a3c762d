"""Moments of the exponential family on a structure."""
