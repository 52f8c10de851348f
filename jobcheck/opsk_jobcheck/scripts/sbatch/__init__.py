"""Reads what a script asks of Slurm and states about itself."""
