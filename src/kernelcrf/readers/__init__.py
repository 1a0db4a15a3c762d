"""Readers check and convert the data that users pass: sequences, feature dicts, labels, graphs, tables, weights."""
