"""Fitted models: frozen, with a public face, and stored as plain values and arrays."""
