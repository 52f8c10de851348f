"""Implements ``opsk probe``."""
