"""Reads power and energy of a node and balances its parts."""
