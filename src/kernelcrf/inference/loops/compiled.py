"""Compile the numerical loops of inference, each for one thread.

An engine runs them in several threads, on different sequences. A multiplication and an addition may be fused, but
sums are never reordered: results may depend on the machine, but not on the number of threads.
"""

from functools import partial

from kernelcrf.engines import compiled as numba_loops

compiled = partial(numba_loops.compiled, fastmath={"contract"})
# For functions that are called once per token: their code is copied into the compiled functions that call them.
inlined = partial(compiled, inline="always")
