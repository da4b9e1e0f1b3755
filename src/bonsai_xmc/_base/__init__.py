"""Files, progress, random numbers and parameters: what every other room uses."""
