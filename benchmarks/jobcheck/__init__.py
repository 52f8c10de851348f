"""Measures advice at submission."""
