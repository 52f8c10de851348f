"""Implements ``opsk postmortem`` and ``opsk collect``."""
