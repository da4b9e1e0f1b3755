"""The fitted model: what training returns, prediction reads, and label edits replace."""
