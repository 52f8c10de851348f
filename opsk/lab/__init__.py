"""A cluster in a box: real Slurm, munge, MariaDB and InfiniBand subnet in one folder, started and ended as one."""
