"""Opens databases, and creates, migrates and checks their tables."""
