"""Kernels on inputs, on labels, and their products on cliques (10)."""
