"""Checks a site and its Slurm installation."""
