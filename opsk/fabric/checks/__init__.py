"""Checks the cabling of a fabric, one module a kind of fault."""
