"""Fitted models: immutable objects that predict, and that can be saved to files."""
