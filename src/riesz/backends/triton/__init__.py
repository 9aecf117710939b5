"""The backend for gradients on CUDA and HIP devices, written in Triton.

`backend` is what the registry knows and imports no Triton; everything else is imported when a gradient is served.
"""
