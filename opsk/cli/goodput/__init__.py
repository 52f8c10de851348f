"""Implements ``opsk goodput``."""
