"""Reads the flags of Megatron-LM and its forks."""
