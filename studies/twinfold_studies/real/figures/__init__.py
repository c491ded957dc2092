"""The figures of each data set. What they show is stored with the fits, so a figure can change without a new fit."""
