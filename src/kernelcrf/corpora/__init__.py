"""The data of a fit, wherever they are: their distinct inputs, features of these, partitions of an objective."""
