"""Public measurements: where they are on this machine, and a loader for each set."""
