"""A rule's state goes through a checkpoint and comes back; another rule's is refused."""

import math

import pytest

from probstep.plain import as_plain
from probstep.rules import Norms, Observation, PaperRule, Proposal, RobustRule, Setting, WatchRule

RULES = {"paper": PaperRule(), "robust": RobustRule()}
VERSION_0_1_0 = {
    "found": 1,
    "too_long": 0.5,
    "t": 7,
    "probes": 3,
    "forwards": 11,
    "variance": 0.25,
    "peak": 1.0,
    "lent": 0.125,
    "ceiling": math.inf,
    "surprised_at": 2,
    "cosine": 0.75,
    "curvature": 4.0,
    "slope": 4.0,
    "steepness": 5.0,
    "relative_slope": 2.0,
    "log_ratio": -1.5,
    "recent": 2.5,
    "older": 3.5,
    "spread": 0.0625,
    "mean": 2.25,
    "mean_spread": 0.03125,
    "log_gradient": math.nan,
}
FRESH = as_plain(RobustRule().init())
VERSION_0_2_0 = {
    "t": 7,
    "forwards": 11,
    "losses": 6,
    "unseen": 0,
    "straight": 0,
    "search": {"is_done": True, "too_long": 0.5, "found": 0.0, "has_failed": False},
    "belief": {
        "variance": 0.25,
        "probes": 3,
        "cosine": 0.75,
        "curvature": 4.0,
        "slope": 4.0,
        "steepness": 5.0,
        "relative_slope": 2.0,
        "log_gradient_per_length": -1.5,
    },
    "bound": {"recent": 2.5, "older": 3.5, "spread": 0.0625, "peak": 1.0},
    "alarm": {
        "mean": 2.25,
        "spread": 0.03125,
        "surprises": 0.0,
        "is_asking": False,
        "suspect": 0.0,
        "ceiling": math.inf,
        "confirmed_at": 2,
    },
}
# What probes said stays, and the averages of the loss begin anew.
THE_SAME_NOW = {
    "t": 7,
    "forwards": 11,
    "losses": 0,
    "unseen": 0,
    "vain": 0,
    "straight": 0,
    "calm": 0,
    "bent": 0,
    "smooth": 2,
    "held": 0,
    "rested": 1.0,
    "pause": 0.0,
    "highest": 0.0,
    "seen_scale": 0.0,
    "sound_scale": 0.0,
    "search": {**VERSION_0_2_0["search"], "rough": 0.0, "has_looked": False, "is_untried": False},
    "belief": {
        **{name: value for name, value in VERSION_0_2_0["belief"].items() if name != "curvature"},
        "root_curvature": 2.0,
    },
    "bound": {**FRESH["bound"], "peak": 1.0},
    "alarm": FRESH["alarm"],
    "setback": FRESH["setback"],
}


def use(rule, state, steps):
    """Probe and notice some steps; return all that the rule answered."""
    answers = []
    for k in steps:
        step = Proposal(2.0 + k % 3, 0.5, rate=0.1, norms=Norms(1.0, 0.2))
        answers.append(rule.judge(state, Observation(step, 1.5 + k % 4)))
        answers.append(rule.notice(state, 2.0 + k % 5, 0.1, Setting(beta=0.9)))
    return answers


@pytest.mark.parametrize("name", RULES)
def test_a_restored_state_goes_on_as_the_one_that_was_saved(name):
    rule = RULES[name]
    state = rule.init()
    use(rule, state, range(20))
    again = rule.restore(as_plain(state))
    assert again == state
    assert use(rule, again, range(20, 60)) == use(rule, state, range(20, 60))
    assert again == state


@pytest.mark.parametrize("name", RULES)
def test_what_was_saved_does_not_change_while_the_state_does(name):
    rule = RULES[name]
    state = rule.init()
    saved, expected = as_plain(state), as_plain(rule.init())
    use(rule, state, range(20))
    assert saved == expected


def test_the_keys_of_a_state_never_change():
    rule = RobustRule()
    state = rule.init()
    use(rule, state, range(20))
    assert as_plain(state).keys() == THE_SAME_NOW.keys()
    parts = ("search", "belief", "bound", "alarm", "setback")
    assert all(as_plain(state)[part].keys() == THE_SAME_NOW[part].keys() for part in parts)


ALARM_0_10_0 = {k: v for k, v in FRESH["alarm"].items() if k not in ("low", "trust")}
ALARM_0_9_0 = {k: v for k, v in ALARM_0_10_0.items() if k != "is_exploding"}
NEW_IN_0_11_0 = ("setback", "vain", "seen_scale")
VERSION_0_13_0 = THE_SAME_NOW | {
    "setback": {k: v for k, v in THE_SAME_NOW["setback"].items() if k != "highest"}
}
VERSION_0_11_0 = {k: v for k, v in VERSION_0_13_0.items() if k != "highest"}
VERSION_0_10_0 = {k: v for k, v in VERSION_0_11_0.items() if k not in NEW_IN_0_11_0}
VERSION_0_10_0["alarm"] = ALARM_0_10_0
VERSION_0_9_0 = VERSION_0_10_0 | {"flat": 0, "alarm": ALARM_0_9_0}
VERSION_0_8_0 = {k: v for k, v in VERSION_0_9_0.items() if k not in ("smooth", "flat")}
VERSION_0_7_0 = {k: v for k, v in VERSION_0_8_0.items() if k != "calm"}
VERSION_0_7_0["search"] = VERSION_0_2_0["search"]
VERSION_0_6_0 = {k: v for k, v in VERSION_0_7_0.items() if k not in ("rested", "pause")}
VERSION_0_4_0 = {
    **VERSION_0_6_0,
    "bound": {k: v for k, v in THE_SAME_NOW["bound"].items() if not k.startswith("lowered")},
    "alarm": {k: v for k, v in THE_SAME_NOW["alarm"].items() if k not in ("last", "rises")},
}
VERSION_0_3_0 = {name: value for name, value in VERSION_0_4_0.items() if name != "sound_scale"}


EARLIER = [
    VERSION_0_1_0,
    VERSION_0_2_0,
    VERSION_0_3_0,
    VERSION_0_4_0,
    VERSION_0_6_0,
    VERSION_0_7_0,
    VERSION_0_8_0,
    VERSION_0_9_0,
    VERSION_0_10_0,
    VERSION_0_11_0,
    VERSION_0_13_0,
]


@pytest.mark.parametrize("saved", EARLIER)
def test_a_state_of_an_earlier_version_is_read(saved):
    rule = RobustRule()
    assert as_plain(rule.restore(saved)) == THE_SAME_NOW
    assert rule.restore(saved) == rule.restore(THE_SAME_NOW)


def test_what_an_earlier_version_had_found_is_the_highest_that_is_known():
    found = {**VERSION_0_11_0, "search": {**VERSION_0_11_0["search"], "found": 0.25}}
    assert RobustRule().restore(found).highest == 0.25


@pytest.mark.parametrize(
    "foreign", [{}, {"scale": 1.0}, {**VERSION_0_1_0, "more": 1}, {**THE_SAME_NOW, "more": 1}]
)
def test_another_rules_state_is_refused(foreign):
    with pytest.raises(ValueError, match="not a RobustState"):
        RobustRule().restore(foreign)


def test_the_papers_rule_refuses_the_robust_rules_state():
    with pytest.raises(ValueError, match="not a PaperState"):
        PaperRule().restore(THE_SAME_NOW)


@pytest.mark.parametrize("saved", [VERSION_0_1_0, VERSION_0_2_0, THE_SAME_NOW])
@pytest.mark.parametrize("bad", [0, -5, math.nan, "7", None])
def test_an_impossible_count_of_steps_is_refused(saved, bad):
    with pytest.raises(ValueError, match=r"\bt\b"):
        RobustRule().restore({**saved, "t": bad})


@pytest.mark.parametrize(
    ("part", "name", "bad"),
    [
        ("search", "too_long", math.nan),
        ("search", "found", -1.0),
        ("belief", "variance", math.nan),
        ("belief", "variance", 1.5),
        ("belief", "root_curvature", math.nan),
        ("belief", "slope", math.inf),
        ("belief", "cosine", 2.0),
        ("bound", "recent", math.nan),
        ("bound", "error", -1.0),
        ("alarm", "mean", math.inf),
        ("alarm", "surprises", -1.0),
        ("setback", "scale", math.inf),
        ("setback", "quiet", -1.0),
    ],
)
def test_an_impossible_number_is_refused_by_its_name(part, name, bad):
    saved = {**THE_SAME_NOW, part: {**THE_SAME_NOW[part], name: bad}}
    with pytest.raises(ValueError, match=name):
        RobustRule().restore(saved)


def test_a_watching_rule_reads_what_version_0_4_0_saved():
    rule = WatchRule()
    now = as_plain(rule.init())
    saved = {
        **now,
        "robust": {**now["robust"], **{p: VERSION_0_4_0[p] for p in ("bound", "alarm")}},
    }
    assert saved["robust"].keys() == now["robust"].keys()
    restored = as_plain(rule.restore(saved))
    assert restored["robust"]["bound"].keys() == now["robust"]["bound"].keys()
    assert restored["robust"]["alarm"].keys() == now["robust"]["alarm"].keys()
