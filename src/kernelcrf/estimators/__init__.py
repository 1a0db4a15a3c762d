"""Estimators with the interface of scikit-learn: they check parameters, and leave the work to fits and models."""
