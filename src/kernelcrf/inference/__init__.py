"""Inference on chains and graphs: log-partitions, marginals, losses, decoding and sampling."""
