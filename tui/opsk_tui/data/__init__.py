"""Collects what the screens show, and carries out their actions."""
