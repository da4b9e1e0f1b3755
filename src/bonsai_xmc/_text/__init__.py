"""Turn texts into feature vectors."""
