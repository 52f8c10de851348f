"""Turns what was read of a job into advice, and renders it as text and JSON."""
