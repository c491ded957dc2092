"""Case Study 1: the battery on NASA's measurements, under five protocols."""
