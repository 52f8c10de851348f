"""Advice at ``sbatch``: readers of launch scripts, the advisor, and the Lua hooks that ask it."""
