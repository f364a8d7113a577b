"""opt.history() shows the run, in bounded memory, and a checkpoint carries it."""

import copy
import io
import math
import pickle
import warnings

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)

from probstep import Every, History, PaperRule, ProbStep, RobustRule
from probstep.history import EVENTS, LIMITS, MOST_EVENTS, MOST_ROWS, SIZE, Ledger
from probstep.rules.robust import limits
from probstep.rules.robust.bound import NOISE
from probstep.rules.robust.state import RobustState

from .cases import FICKLE, batches, loss_of, plain_network, step_with_closure


def make(rule=None, seed=0, lr=1e-6, **settings):
    torch.manual_seed(seed)
    model = plain_network()
    return model, ProbStep(torch.optim.Adam(model.parameters(), lr=lr), rule, **settings)


def train(model, opt, data):
    return [step_with_closure(opt, model, batch).item() for batch in data]


def written(count, **numbers):
    """A ledger of so many rows, whose loss is their step."""
    ledger = Ledger(**numbers)
    for step in range(1, count + 1):
        ledger.open(step, 2.0, 0.25)
        ledger.close(float(step))
    return ledger


# What a row says


def test_a_row_holds_step_loss_scale_and_rate_as_they_were():
    model, opt = make()
    losses, scales, rates = [], [], []
    for batch in batches(30):
        losses += train(model, opt, [batch])
        scales.append(opt.scale)
        rates.append(opt.effective_lr[0])
    history = opt.history()
    assert history.steps == tuple(range(1, 31))
    assert history.losses == tuple(losses)
    # The robust rule hears of a loss a step late: what it lowers then, the user saw a step before.
    assert history.scales == tuple(scales)
    assert history.rates == tuple(rates)


def test_probes_are_counted_and_ratios_are_those_of_the_last_probe():
    model, opt = make()
    probes, ratios, seen = [], [], []
    for batch in batches(40):
        train(model, opt, [batch])
        if opt.last_probe not in seen:
            seen.append(opt.last_probe)
        probes.append(len(seen))
        ratios.append(opt.last_probe.ratio)
    history = opt.history()
    assert history.probes == tuple(probes)
    assert history.ratios == pytest.approx(ratios, rel=0, abs=0, nan_ok=True)
    assert 1 < history.probes[-1] < 40


def test_the_paper_s_rule_has_rows_of_its_probes_alone():
    model, opt = make(PaperRule(), lr=1e-3, probe=Every(3))
    losses = train(model, opt, batches(9))
    history = opt.history()
    assert history.steps == (1, 4, 7)
    assert history.losses == pytest.approx([losses[0], losses[3], losses[6]], rel=1e-6)
    assert set(history.limits) == {""}


def test_a_maximised_objective_is_shown_as_the_user_sees_it():
    w = nn.Parameter(torch.ones(2))
    opt = ProbStep(torch.optim.SGD([w], lr=1e-3, maximize=True))
    values = [opt.step(lambda: 3.0 - w.square().sum()).item() for _ in range(5)]
    assert opt.history().losses == tuple(values)


def test_a_step_without_a_loss_has_no_row():
    model, opt = make()
    train(model, opt, batches(2))
    opt.freeze()
    train(model, opt, batches(3))
    opt.unfreeze()
    train(model, opt, batches(1))
    assert opt.history().steps == (1, 2, 6)


def test_a_rate_that_lies_on_a_device_is_not_read():
    ledger = Ledger()
    ledger.open(1, 2.0, torch.empty((), device="meta"))
    ledger.close(0.5)
    assert math.isnan(ledger.history().rates[0])
    ledger.open(2, 2.0, torch.tensor(0.25))
    ledger.close(0.5)
    assert ledger.history().rates[1] == 0.5


# Bounded memory


@pytest.mark.parametrize("count", [0, 1, 511, 512, 513, 1022, 1023, 1024, 1025, 5000, 100_000])
def test_rows_are_evenly_spaced_and_the_newest_is_there_however_many_there_were(count):
    history = written(count).history()
    assert len(history) <= MOST_ROWS
    assert len(history) >= min(count, MOST_ROWS // 2)
    if count:
        assert (history.steps[0], history.steps[-1]) == (1, count)
        assert (
            len({b - a for a, b in zip(history.steps[:-2], history.steps[1:-1], strict=True)}) <= 1
        )
    assert history.losses == tuple(map(float, history.steps))


def test_too_many_events_are_thinned_where_they_are_commonest():
    ledger = Ledger()
    ledger.add("search", 1, 3.0)
    for step in range(2, 1000):
        ledger.add("rejected", step, 1)
    ledger.add("new level", 1000, 2.0)
    events = ledger.history().events
    assert len(events) <= MOST_EVENTS
    assert [event.name for event in (events[0], events[-1])] == ["search", "new level"]
    assert [event.step for event in events] == sorted({event.step for event in events})
    assert events[-1].number == 1000


def test_one_kind_of_event_is_noted_once_a_step():
    ledger = Ledger()
    for name in ("not finite", "rejected", "not finite"):
        ledger.add(name, 7)
    assert [event.name for event in ledger.events] == ["not finite", "rejected"]


# Checkpoints


@pytest.mark.parametrize("count", [0, 1, 600, 3000])
def test_one_tensor_of_fixed_size_holds_all_of_it(count):
    ledger = written(count, ratio=1.5, limit=2)
    ledger.add("search", 1, 7.0)
    saved = ledger.tensor()
    assert saved.shape == (SIZE,)
    assert saved.dtype == torch.float64
    assert saved.numel() * saved.element_size() < 40_000
    again = Ledger.restored(saved)
    assert again.tensor().numpy().tobytes() == saved.numpy().tobytes()
    for other in (ledger, again):
        for step in range(count + 1, count + 700):
            other.open(step, 2.0, 0.25)
            other.close(1.0)
    assert again.tensor().numpy().tobytes() == ledger.tensor().numpy().tobytes()


@pytest.mark.parametrize("rule", [None, PaperRule(), FICKLE], ids=["robust", "paper", "fickle"])
@pytest.mark.filterwarnings("ignore:The last 8 probed steps")
@pytest.mark.parametrize("split", [1, 7, 19])
def test_the_history_of_a_resumed_run_is_that_of_an_uninterrupted_one(rule, split):
    data = batches(20)
    model, opt = make(rule)
    train(model, opt, data)
    whole = opt.history()

    model, opt = make(rule)
    train(model, opt, data[:split])
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "opt": opt.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    model, opt = make(rule, seed=1)
    model.load_state_dict(saved["model"])
    opt.load_state_dict(saved["opt"])
    train(model, opt, data[split:])
    resumed = opt.history()
    assert pickle.dumps(resumed.columns()) == pickle.dumps(whole.columns())
    assert repr(resumed.events) == repr(whole.events)


@pytest.mark.parametrize("flatten", [False, True])
def test_a_distributed_checkpoint_carries_it(tmp_path, flatten):
    options = StateDictOptions(flatten_optimizer_state_dict=flatten)
    model, opt = make()
    train(model, opt, batches(5))
    with warnings.catch_warnings():  # dcp speaks of a process group that a single process lacks
        warnings.simplefilter("ignore")
        saved = get_optimizer_state_dict(model, opt, options=options)
        dcp.save({"opt": saved}, checkpoint_id=tmp_path, no_dist=True)
        model, again = make(seed=1)
        state = get_optimizer_state_dict(model, again, options=options)
        dcp.load({"opt": state}, checkpoint_id=tmp_path, no_dist=True)
        set_optimizer_state_dict(model, again, state, options=options)
    assert pickle.dumps(again.history().columns()) == pickle.dumps(opt.history().columns())
    assert again.events == opt.events


def test_a_checkpoint_without_a_history_loads_without_a_word():
    model, opt = make()
    train(model, opt, batches(3))
    state = copy.deepcopy(opt.state_dict())
    del state["param_groups"][0]["probstep"]["history"]
    model, opt = make()
    opt.load_state_dict(state)
    assert len(opt.history()) == 0
    train(model, opt, batches(2))
    assert opt.history().steps == (4, 5)


def damaged(**changes):
    saved = written(600).tensor()
    for place, value in changes.items():
        saved[int(place[1:])] = value
    return saved


DAMAGE = {
    "nothing": None,
    "another shape": torch.zeros(3, dtype=torch.float64),
    "whole numbers": torch.zeros(SIZE, dtype=torch.int64),
    "another layout": damaged(_0=2.0),
    "half a row": damaged(_1=0.5),
    "more rows than it has": damaged(_1=100_000.0),
    "an unknown limit": damaged(_5=99.0),
    "a limit that is none": damaged(_13=-1.0),
    "no step": damaged(_7=math.nan),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_history_is_named_and_begins_anew(name):
    model, opt = make()
    train(model, opt, batches(3))
    state = copy.deepcopy(opt.state_dict())
    state["param_groups"][0]["probstep"]["history"] = DAMAGE[name]
    _, opt = make()
    with pytest.warns(RuntimeWarning, match="begins anew: 'history'"):
        opt.load_state_dict(state)
    assert len(opt.history()) == 0
    assert opt.metrics()["steps"] == 3


def test_a_step_that_raises_leaves_no_row():
    model, opt = make()
    (batch,) = batches(1)

    calls = iter(range(9))

    def fails():
        if next(calls):  # the first is the pass itself, others evaluate it again
            raise RuntimeError("no more")
        return loss_of(model, batch)

    with pytest.raises(RuntimeError, match="no more"):
        opt.step(fails)
    assert opt.history() == History()
    train(model, opt, [batch])
    assert opt.history().steps == (1,)
    assert [event.name for event in opt.events] == ["search"]


# Events and limits


def names_of(opt):
    return [event.name for event in opt.history().events]


def test_the_search_is_an_event_and_limits_the_first_rate():
    model, opt = make()
    train(model, opt, batches(1))
    (event,) = opt.history().events
    assert (event.number, event.step, event.name, event.value) == (1, 1, "search", opt.scale)
    assert opt.history().limits == ("search",)


def test_a_rate_that_rises_beyond_all_that_was_known_restarts_and_is_searched_again():
    model, opt = make()
    train(model, opt, batches(3))
    opt.param_groups[0]["lr"] *= 1e4
    train(model, opt, batches(1))
    assert names_of(opt) == ["search", "restarted", "searched again"]
    assert [event.step for event in opt.events] == [1, 4, 4]


def test_a_step_that_is_shortened_is_rejected():
    model, opt = make(FICKLE)
    train(model, opt, batches(2))
    assert [(e.name, e.step, e.value) for e in opt.events[1:]] == [("rejected", 2, 2.0)]


@pytest.mark.filterwarnings("ignore:The loss or a gradient was not finite")
@pytest.mark.parametrize("step", [1, 4])
def test_a_batch_that_is_not_finite_is_an_event_once(step):
    model, opt = make()
    for k, (x, y) in enumerate(batches(6), start=1):
        step_with_closure(opt, model, (x * math.nan if k == step else x, y))
    assert [(e.name, e.step) for e in opt.history().events if e.name == "not finite"] == [
        ("not finite", step)
    ]
    assert math.isnan(opt.history().losses[step - 1])


def test_a_new_level_of_the_loss_is_an_event():
    w = nn.Parameter(torch.ones(3))
    opt = ProbStep(torch.optim.SGD([w], lr=1e-3))
    noise = torch.Generator().manual_seed(0)
    for k in range(60):
        high = 50.0 * (k >= 40)
        shift = high + 0.01 * torch.randn((), generator=noise)
        opt.step(lambda shift=shift: w.square().sum() + shift)
    levels = [event.step for event in opt.history().events if event.name == "new level"]
    assert len(levels) == 1
    assert 41 <= levels[0] <= 46


def test_a_rate_at_its_limit_says_so():
    model, opt = make(lr=1e-3, max_lr=1e-6)
    train(model, opt, batches(3))
    assert set(opt.history().limits) == {"max_lr"}
    assert max(opt.history().rates) <= 1e-6


def test_a_schedule_that_rises_to_the_limit_says_so():
    model, opt = make(lr=1e-3, probe=Every(100))
    train(model, opt, batches(4))
    found = opt.effective_lr[0]
    model, opt = make(lr=1e-3, probe=Every(100), max_lr=2 * found)
    train(model, opt, batches(4))
    assert opt.history().limits[-1] != "max_lr"
    opt.param_groups[0]["lr"] *= 5
    train(model, opt, batches(1))
    assert opt.history().limits[-1] == "max_lr"
    assert opt.history().rates[-1] == pytest.approx(2 * found)


@pytest.mark.parametrize(
    ("change", "limit"),
    [
        ({}, "nothing"),
        ({"aimed": 1.1}, "curvature"),
        ({"ratio": 0.1}, "curvature"),
        ({"bound": 1.05}, "noise"),
        ({"bound": 1.05, "without": {"noise"}}, "nothing"),
        ({"beta": 0.9, "ratio": 1.5}, "momentum"),
        ({"beta": 0.9, "ratio": 1.5, "without": {"pace"}}, "nothing"),
    ],
)
def test_the_robust_rule_names_what_binds(change, limit):
    from probstep.rules import Proposal, Setting

    rule = RobustRule(without=frozenset(change.get("without", ())))
    state = RobustState(t=100)
    if "bound" in change:
        state.losses = 100
        state.bound.recent, state.bound.older, state.bound.recent_time = 1.0, 2.0, 1.0
        state.belief.slope = 4 * NOISE / change["bound"]  # all of the loss is there to gain
    setting = Setting(beta=change.get("beta", 0.0), builds_up=True)
    step = Proposal(loss=1.0, slope=1.0, setting=setting)
    aimed, ratio = change.get("aimed", 5.0), change.get("ratio", 1.9)
    largest = limits.largest_factor(rule, state, step, 2 - ratio)
    assert limits.name_of(rule, state, step, 2 - ratio, aimed=aimed, largest=largest) == limit


def test_every_limit_and_event_that_is_written_can_be_read():
    ledger = Ledger()
    for step, limit in enumerate(LIMITS, start=1):
        ledger.limited(limit)
        ledger.open(step, 1.0, 1.0)
        ledger.close(1.0)
    for name in EVENTS:
        ledger.add(name, 1)
    history = Ledger.restored(ledger.tensor()).history()
    assert history.limits == LIMITS
    assert tuple(event.name for event in history.events) == EVENTS


# What is printed


def test_printed_it_is_a_summary_with_curves():
    history = written(100).history()
    lines = history.summary(width=10).splitlines()
    assert lines[0] == "100 steps, 0 probed"
    assert lines[1] == "loss ▁▄▅▆▆▇▇▇██ 1 → 100"
    assert lines[2] == "rate ▁▁▁▁▁▁▁▁▁▁ 0.5 → 0.5"


def test_where_blocks_cannot_be_written_it_is_plain(monkeypatch):
    history = written(100).history()
    for encoding, is_plain in [("ascii", True), ("latin-1", True), ("utf-8", False)]:
        out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        monkeypatch.setattr("sys.stdout", out)
        assert str(history).isascii() == is_plain
        out.write(str(history))
        monkeypatch.undo()


def test_an_empty_history_says_so():
    _, opt = make()
    assert "No step" in str(opt.history())
    assert repr(opt.history()) == "<History of 0 rows, 0 events>"


def test_columns_are_lists_of_equal_length():
    columns = written(5).history().columns()
    assert list(columns) == ["steps", "losses", "scales", "rates", "probes", "ratios", "limits"]
    assert {len(column) for column in columns.values()} == {5}
    assert columns["steps"] == [1, 2, 3, 4, 5]
