"""States turn into plain numbers and back, and nothing else passes for one."""

import json
import math
from dataclasses import dataclass, field

import pytest

from probstep.plain import as_plain, copied, refuse_outside, restored


@dataclass
class Inner:
    number: float = 0.5

    def __post_init__(self):
        refuse_outside(self, number=(0.0, math.inf))


@dataclass
class Outer:
    count: int = 1
    is_done: bool = False
    word: str = "up"
    inner: Inner = field(default_factory=Inner)


@dataclass(frozen=True)
class Several:
    inners: list[Inner]


def test_a_copy_does_not_change_with_the_states_in_a_state():
    state = Several([Inner(1.0), Inner(2.0)])
    twin = copied(state)
    state.inners.pop().number = 3.0
    assert twin == Several([Inner(1.0), Inner(2.0)])


def test_a_state_comes_back_equal_and_of_the_same_types():
    state = Outer(3, True, "down", Inner(math.inf))
    plain = as_plain(state)
    assert plain == {"count": 3, "is_done": True, "word": "down", "inner": {"number": math.inf}}
    assert restored(Outer, plain) == state
    assert restored(Outer, json.loads(json.dumps(plain))) == state


def test_the_plain_form_shares_nothing_with_the_state():
    state = Outer()
    plain = as_plain(state)
    state.inner.number = 9.0
    assert plain["inner"] == {"number": 0.5}
    again = restored(Outer, plain)
    again.inner.number = 7.0
    assert plain["inner"] == {"number": 0.5}


def test_whole_numbers_pass_for_floats_and_0_and_1_for_bools():
    state = restored(Outer, {"count": 1, "is_done": 1, "word": "", "inner": {"number": 2}})
    assert state.is_done is True
    assert isinstance(state.inner.number, float)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"count": 0.5}, "'count' must be of type int"),
        ({"count": True}, "'count' must be of type int"),
        ({"is_done": 2}, "'is_done' must be of type bool"),
        ({"word": 1}, "'word' must be of type str"),
        ({"inner": 1.0}, "'inner' must be a dictionary"),
        ({"inner": {"number": "1"}}, r"'inner\.number' must be of type float"),
        ({"inner": {"number": True}}, r"'inner\.number' must be of type float"),
        ({"inner": {"number": math.nan}}, r"Inner\.number must lie between 0.0 and inf, not nan"),
        ({"inner": {"number": -1.0}}, r"Inner\.number must lie between"),
        ({"inner": {}}, r"not a Inner: missing 'inner\.number', unknown nothing"),
        ({"more": 1}, "not a Outer: missing nothing, unknown 'more'"),
    ],
)
def test_what_does_not_fit_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        restored(Outer, {**as_plain(Outer()), **change})


def test_what_is_no_dictionary_is_refused():
    with pytest.raises(ValueError, match="must be a dictionary"):
        restored(Outer, [1, 2])
