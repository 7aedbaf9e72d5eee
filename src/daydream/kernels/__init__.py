"""Optional GPU speed: kernels of our own in Triton, reached only behind `daydream.fast`. Without the room all runs."""
