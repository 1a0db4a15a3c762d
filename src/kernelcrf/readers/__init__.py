"""Readers check and convert what users hand in: sequences, feature dicts, labels, graphs, tables, weights."""
