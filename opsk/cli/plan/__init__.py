"""Implements ``opsk plan``."""
