"""Defines the records that are stored, with one module per kind."""
