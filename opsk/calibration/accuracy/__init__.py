"""Measures how far predictions are from measured runs."""
