"""The score of a labelling: a sum of terms on cliques, its penalties, and the linear map from weights to scores."""
