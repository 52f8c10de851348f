"""Parses progress lines; each framework has a module."""
