"""Reads a table of measured runs into models, plans and clusters."""
