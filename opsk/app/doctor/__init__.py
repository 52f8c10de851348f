"""Findings of checks of a site."""
