"""A name that is not known, told with the names that are near it."""

import difflib
from collections.abc import Collection

IMPORT = "One of your own comes from a Python file that you name with --import."


def check_name(name: str, known: Collection[str], kind: str, hint: str = "") -> str:
    """The name, if it is known.

    Args:
        name: What was said.
        known: What could have been said.
        kind: What it is the name of.
        hint: What to do if it is none of these.

    >>> check_name("adm", ["adam", "sgd"], kind="method")
    Traceback (most recent call last):
    ValueError: unknown method 'adm'. Did you mean 'adam'? Allowed: adam, sgd.

    Raises:
        ValueError: It is not; the message has the nearest names and all that are allowed.
    """
    if name in known:
        return name
    close = difflib.get_close_matches(name, known, n=3)
    meant = f"Did you mean {' or '.join(map(repr, close))}? " if close else ""
    text = f"unknown {kind} {name!r}. {meant}Allowed: {', '.join(known)}."
    raise ValueError(f"{text} {hint}".rstrip())
