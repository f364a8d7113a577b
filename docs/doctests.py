"""An extension of griffe: a docstring's doctests become a section of examples, drawn as code.

Without it a doctest outside an `Example:` section is read as prose, and its `[0, 4, 8]` as a link.
"""

import re
from typing import Any

from griffe import Extension, Object

BARE = re.compile(r"^>>> .*(?:\n(?!\n).+)*(?:\n\n>>> .*(?:\n(?!\n).+)*)*", re.MULTILINE)


class Doctests(Extension):
    """Puts doctests that stand outside a section into one."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rewrite one docstring before it is parsed."""
        if obj.docstring is not None:
            obj.docstring.value = BARE.sub(_section, obj.docstring.value)


def _section(found: re.Match[str]) -> str:
    lines = (f"    {line}" if line else "" for line in found[0].splitlines())
    return "\n".join(("Examples:", *lines))
