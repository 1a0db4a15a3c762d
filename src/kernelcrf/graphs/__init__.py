"""Define the cliques of a sample (nodes that are scored together) and templates (cliques that share a potential)."""
