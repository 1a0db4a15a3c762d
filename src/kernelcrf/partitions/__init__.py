"""Resident parts of the data: the map between theta and the scores of cliques, and what inference makes of them."""
