"""The studies of public data sets, one file each: a `Task` in `TASK`."""
