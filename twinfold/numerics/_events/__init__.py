"""A step with events in it: where they are, and what follows them. What an event is: `numerics/_event.py`."""
