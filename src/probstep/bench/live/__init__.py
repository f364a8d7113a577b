"""A page on the runs of an output directory that follows them while they are made."""

from .server import serve as serve
