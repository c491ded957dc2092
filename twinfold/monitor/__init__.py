"""A twin beside what it stands for: residual scores, alarms with a stated rate, remaining life."""
