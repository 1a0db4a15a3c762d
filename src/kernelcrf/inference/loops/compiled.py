"""Compile the numerical loops of inference as functions that run in a single thread.

An engine calls them in several threads, on different sequences. The compiler may neither fuse nor reorder products and
sums, because its choices would depend on which functions it inlines, and therefore on the contents of Numba's cache.
Results thus depend neither on the number of threads nor on the cache.
"""

from functools import partial

from kernelcrf.engines import compiled as numba_loops

compiled = numba_loops.compiled
# For functions that are called once per token: their code is copied into the compiled functions that call them.
inlined = partial(compiled, inline="always")
