"""Models that several studies compare the twin with."""
