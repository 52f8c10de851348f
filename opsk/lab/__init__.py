"""Runs a cluster on one machine: real Slurm, munge, MariaDB and an InfiniBand subnet in one folder."""
