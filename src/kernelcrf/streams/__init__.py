"""Answer while the tokens of a sequence arrive, at a constant cost per token and in constant memory.

The tagger uses some files of this package, so this file imports nothing.
"""
