"""Polls Slurm for running jobs and free nodes, and computes the load on the links, outside of the request path."""
