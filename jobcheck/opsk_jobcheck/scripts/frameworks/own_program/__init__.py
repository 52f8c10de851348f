"""Programs that users write themselves, read by their settings and their Python text."""
