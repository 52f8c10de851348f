"""What does Slurm know of the fabric, and what should it know? Its topology files: read, written, compared."""
