"""Reads and writes dumps of InfiniBand fabrics, with one module per format."""
