"""The backend for gradients on CUDA and HIP devices, written in Triton.

- `backend`: what the registry knows; which gradients a kernel serves, and one launch for all of a dtype
- `launch`: gradients cut into tiles, tables of gradients, launches
- `verify`: the comparison with eager at first use
- `panels`: what the kernels share on the device
- `means`, `smoothing`: the kernels, each with the record of how it is tiled

Triton is imported with the first gradient that is served.
"""
