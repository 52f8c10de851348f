"""Holds the use cases of the commands, screens, exporters and advisor, without any output."""
