"""Measures what a site teaches opsk, and how long that takes."""
