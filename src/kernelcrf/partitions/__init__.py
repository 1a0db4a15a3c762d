"""Partitions of the data: they compute scores from parameters, run inference, and return loss and gradient."""
