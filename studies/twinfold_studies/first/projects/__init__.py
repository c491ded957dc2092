"""The projects as a new user writes them: the physics of each record. The settings are those of `twinfold new`."""
