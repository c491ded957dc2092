"""Experiments that run from the command line, and the folders and reports that they leave behind."""
