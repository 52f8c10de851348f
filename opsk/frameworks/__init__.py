"""Converts plans to the options of training frameworks, and checks which plans each framework can run."""
