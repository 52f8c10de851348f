"""Computes how long the parts of a training step take."""
