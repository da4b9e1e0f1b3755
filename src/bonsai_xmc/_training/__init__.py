"""Training: stages, checkpoints, runners, memory."""
