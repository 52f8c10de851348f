"""Exports what jobs use, how their training goes, and how many post-mortems there are."""
