"""Texts that a stranger may have written, made fit to be shown."""

STRANGE = "\N{REPLACEMENT CHARACTER}"


def printable(text: str) -> str:
    r"""The text on one line, without what a terminal would obey.

    >>> printable("adam\x1b[31m\nsgd")
    'adam�[31m sgd'
    """
    return "".join(c if c.isprintable() else " " if c.isspace() else STRANGE for c in text)
