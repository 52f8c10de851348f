"""Reads which ranks srun, torchrun, accelerate and other launchers start."""
