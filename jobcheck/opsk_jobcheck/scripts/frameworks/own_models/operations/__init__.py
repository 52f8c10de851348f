"""Computes what operations of PyTorch return, and notes what they save for the backward pass.

Source: ``tools/autograd/derivatives.yaml`` (what each operation saves), ``aten/src/ATen/native`` (which operations the
functions consist of) and ``aten/src/ATen/autocast_mode.h`` (what autocast casts) of PyTorch 2.
"""
