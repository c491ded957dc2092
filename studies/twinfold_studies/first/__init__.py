"""The first attempt of a new user, beside ten designs: projects, their data, fits and timing."""
