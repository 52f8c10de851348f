"""Computes what needs no cluster model: scaling laws, closed forms, checkpoints."""
