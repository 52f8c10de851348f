"""Exports metrics of nodes, jobs and Slurm to Prometheus."""
