"""Carrying out what `opsk.planning.remap` proposes: with a journal, so that it can be gone on with and taken back."""
