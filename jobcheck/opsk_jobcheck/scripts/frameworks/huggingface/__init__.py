"""Reads the settings of HuggingFace's Trainer and of programs built on it."""
