"""Fitted models: immutable objects that predict, and that files store as JSON-able values and arrays."""
