"""Executes what `opsk.planning.remap` proposes, with a journal, so that it can be resumed and undone."""
