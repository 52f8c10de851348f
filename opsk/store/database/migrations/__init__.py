"""Holds the migrations of the database tables."""
