"""Runs Slurm's commands and parses their output."""
