"""The structure of samples: their cliques, and the templates whose cliques share one potential."""
