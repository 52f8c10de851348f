"""Reads and writes dumps of InfiniBand fabrics, one module a dialect."""
