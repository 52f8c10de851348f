"""Reads what a use case works on: files, the site, Slurm, the store."""
