"""Parses progress lines, one module a framework."""
