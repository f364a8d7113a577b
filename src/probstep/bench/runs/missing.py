"""What is left to do: decided here, for who counts the runs and for who makes them."""

from collections.abc import Sequence

from probstep.bench.plans import imported_hash
from probstep.bench.records import Record


def is_missing(records: Sequence[Record], *, retry: bool = False) -> bool:
    """Whether there is something left to do for the run of these records.

    Args:
        records: What is on record, perhaps nothing.
        retry: Whether a run that failed is to be made again.

    Raises:
        ValueError: Another text of the user's own problem or method has made them.
    """
    _check_imported(records)
    if not records or not records[-1].is_final:
        return True
    return retry and records[-1].status == "failed"


def _check_imported(records: Sequence[Record]) -> None:
    for record in records:
        now = imported_hash(record.run.problem, record.run.method)
        if record.imported != now:
            raise ValueError(
                f"The records of {record.run} were made with another --import file (hash "
                f"{record.imported or 'none'}) than the present one (hash {now or 'none'}), so they "
                "may be out of date. Use another directory with --out, or restore the file."
            )
