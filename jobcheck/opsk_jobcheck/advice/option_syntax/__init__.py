"""Formats plan changes in the option syntax of each framework."""
