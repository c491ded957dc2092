"""Loads of a cell described in words, and the simulation of a twin under them."""
