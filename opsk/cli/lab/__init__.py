"""Implements ``opsk lab``."""
