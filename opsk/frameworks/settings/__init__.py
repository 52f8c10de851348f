"""The names of the settings that frameworks and training programs read, as tables."""
