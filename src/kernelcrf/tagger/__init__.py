"""The code of the second distribution, kernelcrf-tagger: labels from model files with NumPy and safetensors alone.

Both wheels contain the files of this package, and the files of other packages that it imports. These files import each
other by relative names, so that they work in `kernelcrf` and in `kernelcrf_tagger`, and nothing else but NumPy,
safetensors and the standard library. A test checks both.
"""
