"""Exports Slurm's queue, nodes, partitions and scheduler."""
