"""Gathers, applies, resumes and undoes remaps."""
