"""What is left to do is decided in one place."""

import pytest

from probstep.bench.records import Record
from probstep.bench.runs.missing import is_missing

from ..bench_cases import make_run


def record(status, **values):
    # A problem of the bench's own: what other tests have imported must not matter.
    return Record(run=make_run(problem="regression"), epoch=1, status=status, **values)


@pytest.mark.parametrize(
    ("status", "is_left", "is_left_on_retry"),
    [
        ("running", True, True),
        ("interrupted", True, True),
        ("done", False, False),
        ("diverged", False, False),
        ("failed", False, True),
    ],
)
def test_a_run_is_left_unless_it_has_ended_and_failed_ones_are_if_asked(
    status, is_left, is_left_on_retry
):
    assert is_missing([record(status)]) == is_left
    assert is_missing([record(status)], retry=True) == is_left_on_retry


def test_a_run_without_records_is_left():
    assert is_missing([])


def test_records_of_another_own_file_are_refused():
    with pytest.raises(ValueError, match="made with another --import file"):
        is_missing([record("done", imported="0" * 16)])
