"""The ``opsk`` command: one module a sub-command; each parses, calls the library, prints."""
