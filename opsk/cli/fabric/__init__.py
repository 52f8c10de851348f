"""Implements `opsk fabric`."""
