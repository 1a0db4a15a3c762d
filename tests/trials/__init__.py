"""Trials that the tests run in a quick version and `python -m studies reliability` at length."""
