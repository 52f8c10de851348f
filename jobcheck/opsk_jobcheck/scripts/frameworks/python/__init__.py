"""Python programs as text: what they state, the models and roles that they make, and their settings."""
