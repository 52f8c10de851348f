"""Implements `opsk lab`."""
