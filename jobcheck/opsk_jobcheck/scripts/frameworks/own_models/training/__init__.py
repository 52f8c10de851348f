"""Follows one step of a program's training: its batch, its forward pass, and what both take of memory."""
