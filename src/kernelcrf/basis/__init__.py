"""The basis of the weights: find the distinct inputs, choose landmarks (atoms) and compute whitened features."""
