"""Implements ``opsk fabric``."""
