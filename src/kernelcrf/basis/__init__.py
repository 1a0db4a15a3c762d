"""The subspace that weights live in: distinct inputs, chosen atoms, whitened features."""
