"""What kernels are written in, and what compiles them."""
