"""The fleet experiment: a SYNTHETIC fleet of battery cells (`cells`), what is measured on it (`speed`, `faults`), and
the same estimate on an accelerator from arrays in memory (`device`, which needs JAX and the library alone).
"""
