"""Implements `opsk predict`."""
