"""Formats values and makes text safe for the screen."""
