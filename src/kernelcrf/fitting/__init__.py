"""One problem, one fit."""
