"""Implements `opsk scaling`."""
