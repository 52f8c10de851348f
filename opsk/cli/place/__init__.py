"""Implements ``opsk place`` and ``opsk srun-options``."""
