"""The command ``opsk events``."""
