"""Implements the ``opsk`` command: a package or module per sub-command, which parses, calls the library, prints."""
