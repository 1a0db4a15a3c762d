"""Estimators in the manner of scikit-learn: parameters, validation, and delegation to fits and models."""
