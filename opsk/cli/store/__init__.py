"""Implements `opsk store`."""
