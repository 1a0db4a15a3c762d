"""The structure of a sample: its cliques and the templates that tie them."""
