"""Recognises a program that was run before, and summarises what its earlier runs used."""
