"""The pages of the documentation, and the blocks of code in them."""

from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")),
]
PAGES.sort()


@dataclass(frozen=True)
class Block:
    """A block of code.

    Args:
        page: The page, from the root of the repository.
        line: The line of the page on which its text begins, counted from 1.
        language: What stands behind the three backticks.
        text: The block without them.
    """

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def opening(self) -> str:
        """The first line, by which the block is known."""
        return self.text.splitlines()[0]

    def run(self, names: dict[str, object]) -> None:
        """Run a block of Python as printed; a traceback shows the line of the page."""
        code = "\n" * (self.line - 1) + self.text
        exec(compile(code, str(ROOT / self.page), "exec"), names)


def sides_of(block: Block) -> tuple[Block, Block]:
    """Return a change as the code before it and the code after it."""
    before, after = (
        "\n".join(line[1:] for line in block.text.splitlines() if not line.startswith(sign))
        for sign in "+-"
    )
    return replace(block, text=before), replace(block, text=after)


def read(page: str) -> str:
    """Return the text of a page."""
    return (ROOT / page).read_text(encoding="utf-8")


def blocks_of(page: str) -> list[Block]:
    """Return the blocks of a page, in their order."""
    blocks, begun, language = [], None, ""
    lines = read(page).splitlines()
    for number, line in enumerate(lines, start=1):
        if not line.startswith("```"):
            continue
        if begun is None:
            begun, language = number + 1, line.removeprefix("```")
        else:
            text = "\n".join(lines[begun - 1 : number - 1])
            blocks.append(Block(page, begun, language, text))
            begun = None
    assert begun is None, f"{page}: the block that begins on line {begun} has no end"
    return blocks


def all_blocks(language: str) -> list[Block]:
    """Return the blocks of all pages in a language."""
    return [block for page in PAGES for block in blocks_of(page) if block.language == language]
