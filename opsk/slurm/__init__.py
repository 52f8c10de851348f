"""Queries Slurm for jobs and nodes through one interface, with one adapter on Slurm's commands and one on pyslurm."""
