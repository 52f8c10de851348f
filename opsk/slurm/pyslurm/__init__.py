"""Asks Slurm through pyslurm, in a child process."""
