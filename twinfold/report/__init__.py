"""What was learned, how good it is and where to be careful: one folder about a fitted twin, read in a browser."""
