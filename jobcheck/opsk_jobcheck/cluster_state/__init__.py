"""What runs now, which nodes are free, and who is on the links? Asked of Slurm beside the answers, never within one."""
