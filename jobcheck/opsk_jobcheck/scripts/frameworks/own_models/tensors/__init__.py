"""Defines the tensors of a training step, and notes what it saves for the backward pass."""
