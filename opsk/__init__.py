"""opsk: operations toolkit for Slurm clusters that train large models."""

__version__ = "0.1.0"
