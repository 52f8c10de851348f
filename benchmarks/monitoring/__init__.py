"""Measures exporters, screens, post-mortems and the lab."""
