"""Features that approximate a kernel: find the distinct inputs, choose landmarks, and compute whitened features."""
