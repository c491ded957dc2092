"""Before any training: what a system and its data look like together, in plain words."""
