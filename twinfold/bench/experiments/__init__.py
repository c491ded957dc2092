"""Each table and figure of the paper as an experiment, and those that it only wishes for."""
