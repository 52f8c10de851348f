"""Exports the power and energy of a node."""
