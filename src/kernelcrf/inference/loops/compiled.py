"""Compilation of the numerical loops of inference: serial, with fused products.

Parallelism is the engine's (threads over ranges of sequences), never a kernel's own. Multiplications and
additions may be fused, sums are never reordered: a result depends on the machine, not on the number of threads.
"""

from functools import partial

from kernelcrf.engines import compiled as numba_loops

compiled = partial(numba_loops.compiled, fastmath={"contract"})
# For work that is done once per token: inlined into each compiled function that calls it.
inlined = partial(compiled, inline="always")
