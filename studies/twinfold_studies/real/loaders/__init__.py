"""One module for each public data set, with a function `load(folder)` that returns its records."""
