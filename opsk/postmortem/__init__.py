"""Explains why a job died: what failed first, where, on what evidence, and what evidence is missing."""
