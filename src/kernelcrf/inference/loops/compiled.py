"""Compile the numerical loops of inference, each for one thread.

An engine runs them in several threads, on different sequences. Products and sums are neither fused nor reordered. The
compiler's choice of what to fuse would depend on what it inlines, and so on which functions Numba finds in its cache.
Results therefore depend neither on the number of threads nor on the state of the cache.
"""

from functools import partial

from kernelcrf.engines.compiled import compiled

# For functions that are called once per token: their code is copied into the compiled functions that call them.
inlined = partial(compiled, inline="always")

__all__ = ["compiled", "inlined"]
