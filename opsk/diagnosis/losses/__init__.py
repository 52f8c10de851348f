"""Finds where a running job loses time against its prediction."""
