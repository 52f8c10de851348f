"""Counts the parameters of models that users write as modules of PyTorch, from the text of their Python files."""
