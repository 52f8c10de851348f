"""Holds the catalogue of public models that ships with opsk, each entry with its source."""
