"""The estimators of scikit-learn form."""
