"""Parses the progress lines of training frameworks."""
