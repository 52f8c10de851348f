"""Implements ``opsk setup``: checks this host, and writes the site configuration."""
