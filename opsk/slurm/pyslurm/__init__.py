"""Queries Slurm through pyslurm, in a child process."""
