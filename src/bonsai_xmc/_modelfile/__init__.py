"""The model file: a checked safetensors container, and what it holds."""
