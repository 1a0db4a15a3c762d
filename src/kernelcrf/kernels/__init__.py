"""Kernels of inputs and kernels of labels. The kernel of a clique is their product (equation 10)."""
