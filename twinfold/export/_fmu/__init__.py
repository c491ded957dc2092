"""Export to FMI 2.0 for co-simulation: the C of `_c` inside the slave of `templates/fmi2.c.j2`."""
