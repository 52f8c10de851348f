"""Readers of launch scripts: the shell and ``sbatch`` rules, and one file a training framework. Nothing is executed."""
