"""Scores of labellings as sums of terms on cliques, the penalties of terms, and the map from weights to scores."""
