"""The rule is alive: whatever it has seen, once the world is quiet a scale that is too low rises."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from probstep.rules import Norms, Observation, Proposal, RobustRule, Setting
from probstep.rules.robust.state import RobustState

RULE = RobustRule()
EPS = 2.0**-23  # the rounding of the loss


@dataclass
class Training:
    """The rule alone, and what it is told: of steps that fall as their slope and bend promise."""

    state: RobustState
    scale: float
    loss: float = 1.0

    def probe(self, slope, bend):
        """Probe a step with this slope at rate 1, which bends by this much at rate 1."""
        is_searching = RULE.is_searching(self.state)
        rate = 1.0 if is_searching else self.scale
        step = Proposal(
            self.loss, slope * rate, EPS * abs(self.loss), rate, norms=Norms(abs(slope), rate)
        )
        if is_searching:
            step = step.times(RULE.first_length(step))
        for tries in range(1, 40):
            after = self.loss - step.slope * (1 - bend * step.rate / 2)
            decision = RULE.judge(self.state, Observation(step, after, tries))
            if decision.again is None:
                break
            step = step.times(decision.again)
        if not is_searching or not RULE.is_searching(self.state):
            self.scale = decision.factor * (step.rate if is_searching else self.scale)

    def step(self, slope, bend):
        """Take a step, probed if the rule wants it, after which the loss has fallen as promised."""
        before = self.loss
        if RULE.is_due(self.state):
            self.probe(slope, bend)
        self.loss -= slope * self.scale * (1 - bend * self.scale / 2)
        self.scale *= RULE.notice(self.state, before, self.scale, Setting())


def overdrawn(state):
    """The steps until the budget allows another probe."""
    at_once, per_step = RULE.budget
    return max(0.0, state.forwards - at_once - per_step * state.t) / per_step


numbers = st.one_of(st.floats(), st.floats(-10, 10))
events = st.lists(st.tuples(numbers, numbers, numbers, numbers, numbers, numbers), max_size=25)


def live_through(training, history):
    """Tell the rule of arbitrary losses, and of arbitrary probes where it asks for them."""
    for loss, slope, after, gradient, length, noticed in history:
        if RULE.is_due(training.state):
            step = Proposal(loss, slope, 1e-7, 0.1, norms=Norms(abs(gradient), abs(length)))
            for tries in range(1, 40):
                decision = RULE.judge(training.state, Observation(step, after, tries))
                if decision.again is None:
                    break
                step = step.times(decision.again)
        training.scale *= RULE.notice(training.state, noticed, training.scale, Setting())


@given(events, st.floats(-3, 3), st.integers(1, 3000))
def test_from_1e_30_a_search_brings_it_back_within_300_steps_of_a_budget_that_allows_a_probe(
    history, log_loss, t
):
    training = Training(RULE.init(), scale=1.0)
    live_through(training, history)
    training.state.t = max(t, training.state.t)
    training.scale, training.loss = 1e-30, 10**log_loss
    slope = training.loss
    for _ in range(300 + int(overdrawn(training.state))):
        training.step(slope, bend=1.0)
        if training.scale > 1e-2:
            return
    raise AssertionError(training)


ordinary = st.lists(
    st.tuples(st.floats(0.8, 1.2), st.floats(0.5, 2.0), st.floats(0.1, 2.0)), max_size=60
)


def rises_tenfold(history, steps):
    """Say whether a scale of a hundredth of what was found rises tenfold in a world of slope 1."""
    training = Training(RULE.init(), scale=1.0)
    for noise, slope, bend in history:
        training.loss = 100 * noise
        training.step(slope, bend)
    training.state.alarm.is_asking = False
    training.loss, training.scale = 100.0, training.state.search.found / 100
    goal = 10 * training.scale
    for _ in range(steps + int(overdrawn(training.state))):
        training.step(slope=1.0, bend=1.0)
        if training.scale >= goal:
            return True
    return False


@given(ordinary.filter(bool))
def test_a_scale_far_below_what_was_found_rises_tenfold_within_100_steps(history):
    assert rises_tenfold(history, steps=100)
