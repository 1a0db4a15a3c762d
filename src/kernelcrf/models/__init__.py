"""Fitted models: immutable objects that predict labels and can be saved to files."""
