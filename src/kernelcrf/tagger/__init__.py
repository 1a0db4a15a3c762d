"""The code of kernelcrf-tagger, a distribution that labels sequences and needs only NumPy and safetensors.

The wheels of kernelcrf and of kernelcrf-tagger both contain the files of this package, and the files that these import.
All of these files import each other by relative names, so that they work in both wheels. They import nothing else but
NumPy, safetensors and the standard library. A test checks these rules.
"""
