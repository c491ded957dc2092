"""Every test runs in float64 on the CPU unless it asks for something else."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax

jax.config.update("jax_enable_x64", True)
