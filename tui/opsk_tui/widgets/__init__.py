"""Implements the widgets of the screens, one module per widget."""
