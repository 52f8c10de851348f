"""Advice on jobs of which a size, or the model itself, is stated nowhere."""
