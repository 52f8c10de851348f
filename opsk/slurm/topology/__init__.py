"""Reads, writes and compares Slurm's topology files."""
