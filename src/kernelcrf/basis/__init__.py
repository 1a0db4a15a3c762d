"""Compute features whose inner products approximate a kernel.

The steps are: find the distinct inputs, choose some points as landmarks (inducing points), and compute one feature per
landmark for each input.
"""

from kernelcrf.basis.landmarks import Landmarks

__all__ = ["Landmarks"]
