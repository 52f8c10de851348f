"""Implements ``opsk design``."""
