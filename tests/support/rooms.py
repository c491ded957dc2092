"""The public rooms of the library."""

import inspect

import twinfold as tw

ROOMS = tuple(name for name in dir(tw) if inspect.ismodule(getattr(tw, name)))
