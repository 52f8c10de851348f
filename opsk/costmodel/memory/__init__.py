"""Computes the memory of the fullest GPU, term by term."""
