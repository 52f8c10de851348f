"""Evaluates the variables and commands of a shell script as far as they are certain; nothing is executed."""
