"""Serves what earlier runs of a program used, from a file that a process of its own writes from the store."""
