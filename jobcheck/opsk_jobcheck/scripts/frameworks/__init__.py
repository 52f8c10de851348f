"""Reads the settings of training frameworks, one module a framework."""
