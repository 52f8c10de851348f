"""Reads the inputs of the use cases: files, the site configuration, Slurm and the store."""
