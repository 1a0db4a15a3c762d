"""Results of a fitted model other than labels: explanations, uncertainty, sequences to label next, summaries."""
