"""Runs collectors and serves their metrics over HTTP or as a file."""
