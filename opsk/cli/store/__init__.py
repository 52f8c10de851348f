"""Implements ``opsk store``."""
