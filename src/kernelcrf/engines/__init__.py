"""Engines run work: an ordered map. They know no mathematics."""
