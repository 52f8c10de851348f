"""Implements ``opsk predict``."""
