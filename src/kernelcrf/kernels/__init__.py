"""Kernels of inputs and kernels of labels; their products are the kernels of cliques (10)."""
