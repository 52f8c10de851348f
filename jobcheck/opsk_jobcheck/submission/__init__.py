"""Holds what was asked of Slurm and how the hooks send it."""
