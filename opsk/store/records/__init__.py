"""Defines the records that are stored, one module a kind."""
