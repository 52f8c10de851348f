"""Reads jobs of verl: reinforcement learning, and supervised fine-tuning."""
