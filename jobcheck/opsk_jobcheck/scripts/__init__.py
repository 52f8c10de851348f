"""Reads launch scripts: the shell, ``sbatch`` directives and training frameworks. Nothing is executed."""
