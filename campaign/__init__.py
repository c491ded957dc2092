"""A campaign against the library: hostile input, kills, full disks, sanitizers, wrong calls, long runs."""
