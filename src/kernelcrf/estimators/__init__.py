"""What users hold: estimators in the manner of scikit-learn, and the readers of what they hand in."""
