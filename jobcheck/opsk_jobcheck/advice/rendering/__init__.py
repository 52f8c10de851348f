"""Renders advice: as lines of a terminal by subject, as JSON, and what earlier runs used."""
