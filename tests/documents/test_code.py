"""Every block of Python in the documents runs as printed and does what its page says."""

from functools import partial

import pytest

from ..ranks.spawn import on_ranks
from .pages import Block, all_blocks, sides_of
from .surroundings import SURROUNDINGS, surroundings_of

CHANGES = [side for block in all_blocks("diff") for side in sides_of(block)]
BLOCKS = [*all_blocks("python"), *CHANGES]


def cases() -> list:
    """A case per block; three where gradients may accumulate."""
    found = []
    for block in BLOCKS:
        row = surroundings_of(block.page, block.opening)
        counts = (1, 2, 4) if row is not None and row.accumulates else (1,)
        found += [pytest.param(block, count, id=f"{block}-{count}") for count in counts]
    return found


@pytest.mark.filterwarnings("ignore:The 'train_dataloader' does not have many workers")
@pytest.mark.filterwarnings("ignore:The number of training batches")
@pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.`:FutureWarning")
@pytest.mark.parametrize(("block", "count"), cases())
def test_a_block_runs_as_printed(
    block: Block, count: int, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = surroundings_of(block.page, block.opening)
    assert row is not None, f"{block}: add a row to SURROUNDINGS that says what the block needs"
    if row.needs is not None:
        pytest.importorskip(row.needs)
    monkeypatch.chdir(tmp_path)
    if row.ranks:
        outcomes = on_ranks(row.ranks, {"block": partial(run_and_check, block)})["block"]
        assert outcomes == [None] * row.ranks
    else:
        run_and_check(block, count=count)


def run_and_check(block: Block, *_: int, count: int = 1) -> None:
    """Run a block as printed, on any rank, and look at what it leaves."""
    row = surroundings_of(block.page, block.opening)
    names = row.names(count)
    block.run(names)
    row.check(names)


def test_every_row_belongs_to_a_block() -> None:
    found = [(block.page, block.opening) for block in BLOCKS]
    for page, start in SURROUNDINGS:
        assert any(of == page and opening.startswith(start) for of, opening in found), (page, start)
