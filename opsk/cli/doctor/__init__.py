"""Implements ``opsk doctor``: one module per part of the site that is checked."""
