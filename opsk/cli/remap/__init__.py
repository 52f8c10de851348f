"""Implements ``opsk remap`` and ``opsk launch``."""
