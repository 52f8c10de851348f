"""Fits efficiency parameters to measured runs."""
