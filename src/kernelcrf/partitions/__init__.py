"""Partitions of the training data, which compute the loss and its gradient for their samples."""
