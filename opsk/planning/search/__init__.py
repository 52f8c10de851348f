"""Searches the legal plans for the fastest one, and for the trade-offs around it."""
