"""Measure time and memory beside other libraries; the results are in docs/benchmarks."""
