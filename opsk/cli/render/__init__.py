"""Renders fabrics and charts for terminals, SVG and PNG."""
