"""Reads the screens' data: one module per source; each source may fail, and none waits for another."""
