"""Reads the shape of a model from a HuggingFace ``config.json``."""
