"""Graphs of samples: which nodes are scored together (cliques), and which cliques share one potential (templates)."""
