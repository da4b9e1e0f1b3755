"""Files, progress, random numbers and parameters: used by all other packages."""
