"""Detects the causes of lost time, one module each; `opsk.diagnosis.losses.losses` lists them."""
