"""Implements ``opsk losses``."""
