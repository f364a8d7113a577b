"""The questions are those of the mistakes that the tests know, and quote what is said of them."""

import re

import pytest

from ..mistakes import MISTAKES
from .pages import read

PAGE = "docs/faq.md"
SECTIONS = re.split(r"^### ", read(PAGE), flags=re.MULTILINE)


def section_of(mistake: str) -> str:
    (found,) = [text for text in SECTIONS if f"<!-- mistake: {mistake} -->" in text]
    return found


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_has_a_question_that_quotes_its_message_and_an_answer(mistake: str) -> None:
    _, quoted, answer = section_of(mistake).split("```")
    said = " ".join(quoted.split())
    assert re.search(MISTAKES[mistake].says, said), said
    assert answer.partition("<!--")[0].strip()


def test_no_question_is_about_a_mistake_that_is_not_known() -> None:
    assert set(re.findall(r"<!-- mistake: (.+) -->", read(PAGE))) == MISTAKES.keys()
