"""Compute results of a fitted model: explanations and uncertainty of labels, sequences to label next, summaries."""
