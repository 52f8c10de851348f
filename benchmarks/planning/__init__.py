"""Measures search, fabrics, placement and remapping."""
