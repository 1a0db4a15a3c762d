"""Partitions of the data: they compute scores of cliques from theta, run inference, and return loss and gradient."""
