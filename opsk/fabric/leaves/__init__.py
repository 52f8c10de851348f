"""Classifies switches that have hosts: compute leaves, storage leaves, spines."""
