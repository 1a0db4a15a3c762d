"""Engines apply functions to items in parallel, and return the results in order. They contain no mathematics."""
