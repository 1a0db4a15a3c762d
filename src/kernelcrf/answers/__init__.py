"""Results of a fitted model beyond labels: explanations, uncertainty, sequences to label next, summaries."""
