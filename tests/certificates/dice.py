"""Independent draws: every dimension of a problem has a stream of its own, and a new one leaves the others alone."""

from zlib import crc32

import numpy as np


class Dice:
    """The draws of one seed; `drawn` keeps them for the line that describes a failure."""

    def __init__(self, seed):
        self.seed, self.drawn = seed, {}

    def stream(self, name):
        """Return the generator of a dimension."""
        return np.random.default_rng([self.seed, crc32(name.encode())])

    def pick(self, name, common, *rare, share=0.5):
        """Return `common`, or with probability `share` one of the others."""
        rng = self.stream(name)
        rarely = bool(rare) and rng.random() < share
        self.drawn[name] = rare[int(rng.integers(len(rare)))] if rarely else common
        return self.drawn[name]

    def power(self, name, low, high):
        """Return 10 to a power between low and high."""
        self.drawn[name] = float(f"{10 ** self.stream(name).uniform(low, high):.3g}")
        return self.drawn[name]

    def count(self, name, low, high):
        """Return an integer from low to high."""
        self.drawn[name] = int(self.stream(name).integers(low, high + 1))
        return self.drawn[name]

    def replace(self, name, value):
        """Replace a draw that does not go with the others."""
        self.drawn[name] = value
        return value
