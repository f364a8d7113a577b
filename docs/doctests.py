"""An extension of griffe: a docstring's doctests become a section of examples, drawn as code.

Without it a doctest is read as prose, and its `[0, 4, 8]` as a link, unless its section is called
`Examples:`.
"""

import re
from typing import Any

from griffe import Extension, Object

BARE = re.compile(r"^>>> .*(?:\n(?!\n).+)*(?:\n\n>>> .*(?:\n(?!\n).+)*)*", re.MULTILINE)

ONE = re.compile(r"^Example:$", re.MULTILINE)


class Doctests(Extension):
    """Puts doctests into the section that griffe knows."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rewrite one docstring before it is parsed."""
        if obj.docstring is not None:
            named = ONE.sub("Examples:", obj.docstring.value)
            obj.docstring.value = BARE.sub(_section, named)


def _section(found: re.Match[str]) -> str:
    lines = (f"    {line}" if line else "" for line in found[0].splitlines())
    return "\n".join(("Examples:", *lines))
