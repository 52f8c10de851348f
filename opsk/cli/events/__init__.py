"""Implements ``opsk events``."""
