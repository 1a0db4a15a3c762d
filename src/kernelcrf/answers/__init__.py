"""Answers of a fitted model beyond labels: explanations, uncertainty, what to label next, summaries."""
