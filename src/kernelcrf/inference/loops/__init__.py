"""Compiled loops of inference: plain functions on arrays, one module for each module of `inference` that calls them."""
