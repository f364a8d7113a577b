"""A hook of mkdocs: formulas become MathML, which browsers draw without any script."""

import html
import re
from typing import Any

from latex2mathml.converter import convert

FORMULA = re.compile(r'<(span|div) class="arithmatex">\s*\\[(\[](.*?)\\[)\]]\s*</\1>', re.DOTALL)


def on_page_content(content: str, **_: Any) -> str:
    """Return the page with its formulas drawn."""
    return FORMULA.sub(_draw, content)


def _draw(found: re.Match[str]) -> str:
    display = "block" if found[1] == "div" else "inline"
    return convert(html.unescape(found[2]).strip(), display=display)
