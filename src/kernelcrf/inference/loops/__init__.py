"""Compiled loops: plain functions on arrays, one module for each of `inference` that calls them."""
