"""What limits the scale: how far it rises at a probe, and how far it falls between probes."""

import math

from ..protocol import Observation, Proposal, Setting
from . import belief, bound, search, setback
from .numbers import DOUBLE, FEW, HALF_AGAIN, NOISE, QUARTER, TENTH, TWENTIETH
from .settings import Settings
from .state import SMOOTH_PROBES, RobustState

LEAST_SCALE = 1e-200  # a scale below it is not lowered between probes: it must not become 0
DOWN = 1 / DOUBLE  # the smallest factor for the scale, per step and per probe
CLIMB = DOUBLE  # the largest factor of a probe at first, and on the way back after straight probes
FALLEN = TENTH  # of the scale that was found: below it a scale has fallen, and may come back fast
FAR = 1 / QUARTER  # how many times a climb must stay below what curvature allows
STRAIGHT_PROBES = FEW  # in a row: nothing near bends the loss
CALM = QUARTER  # a bend below it cannot be why losses rise: the step gains nearly what it promises
BENT_PROBES = int(DOUBLE)  # in a row that went too far: the averages are too slow for what has come
MORE_BENT_PROBES = FEW  # the same where momentum sums gradients: by chance it may lie across one
BENDING = 1 - QUARTER  # the bend from which on a step does not raise the scale
GENTLY_BENDING = 1 / DOUBLE  # the same for the first steps of an optimizer like Adam
GENTLY_TOO_FAR = 1.0  # the bend of a step to the minimum: those must not go beyond it
RISEN = DOUBLE  # the bend from which on a step raises the loss
PACE = HALF_AGAIN  # with a sum of gradients, the largest rise in 1/(1-beta) steps once steps count
RESTED = DOUBLE  # times 1/(1-beta) steps after a rise: longer ones allow no larger rise
PAUSE = QUARTER  # times 1/(1-beta) steps: so long the next probe waits, else many make one rise
PROMISE = TWENTIETH  # of the loss: a straight step whose noise costs so much counts as a bent one


def largest_scales(settings: Settings, state: RobustState, setting: Setting) -> bound.Allowed:
    """Return the largest scales whose steps promise no more than there is to gain."""
    if not state.losses or "noise" in settings.without:
        return bound.UNBOUNDED
    is_early = is_beginning(state) and "early" not in settings.without
    allowed = bound.allowed(
        state.bound,
        state.losses,
        setting,
        is_early=is_early,
        heeds_scatter="scatter" not in settings.without,
        heeds_plateaus="plateau" not in settings.without,
    )
    slope = belief.slope_at(state.belief, state.bound.recent)
    return bound.largest_scales(allowed, slope, setting)


# Between probes


def bounded(settings: Settings, state: RobustState, scale: float, setting: Setting) -> float:
    """Return the factor by which the bound moves the scale.

    It lowers the scale slowly, but what is certain at once. What it took it gives back slowly, when it
    allows more: the gain to come is known with an error, and what one error took should not be lost.
    """
    largest, certain = largest_scales(settings, state, setting)
    if largest >= scale:
        has_taken = state.bound.lowered_scale > scale
        if not has_taken or state.alarm.is_asking or "return" in settings.without:
            return 1.0
        return bound.given_back(state.bound, scale, largest, state.losses, setting)
    if is_held(settings, state):
        if bound.is_rising(state.bound, state.losses, bound.SURE):
            state.held += 1
        return 1.0
    bound.remember(state.bound, scale, setting)
    factor = bound.slowed(largest / scale, state.losses + 1, DOWN)
    return factor if "certain" in settings.without else min(factor, max(certain / scale, DOWN))


def is_beginning(state: RobustState) -> bool:
    """Say whether training has just begun, and at least half of its t - 1 losses are of this level.

    >>> is_beginning(RobustState(t=50, losses=49)), is_beginning(RobustState(t=500, losses=49))
    (True, False)
    """
    return state.losses <= bound.EARLY and 2 * state.losses >= state.t - 1


def is_held(settings: Settings, state: RobustState) -> bool:
    """Say whether the losses rise although steps hardly bend: then it is not the rate that raises them.

    Data that change do that, and losses that are no objective: another player's move, a policy's own
    mistakes. A lower rate would mend neither.
    """
    if state.calm < STRAIGHT_PROBES or "hold" in settings.without:
        return False
    return bound.is_rising(state.bound, state.losses)


def are_straight(state: RobustState) -> bool:
    """Say whether none of the last probes saw a bend.

    >>> are_straight(RobustState(straight=3))
    True
    """
    return state.straight >= STRAIGHT_PROBES


def shows_at_once(state: RobustState, step: Proposal) -> bool:
    """Say whether the step after a fast rise shows whether it was right, so that it is probed.

    With SGD it does not, unless the scale was far lower than the one that was found: on the floor of a
    valley it takes some steps until a rate that is too high for its walls can be seen. (With momentum
    `is_paced` sees to that.) On the way back after a setback there are forward passes for it.
    """
    setting = step.setting
    is_plain = setting.builds_up and not setting.beta
    if setback.is_way_back(state.setback, scale_of(step)):
        return True
    return is_coming_back(state, step) or (are_straight(state) and not is_plain)


def is_coming_back(state: RobustState, step: Proposal) -> bool:
    """Say whether the scale is far below the highest that was found, though nothing bends any more."""
    return are_straight(state) and has_fallen(scale_of(step), state.highest)


def has_fallen(scale: float, found: float) -> bool:
    """Say whether a scale is far below one that a search found.

    >>> has_fallen(scale=0.05, found=1.0)
    True
    """
    return scale < FALLEN * found


# In a search


def room(settings: Settings, state: RobustState, seen: Observation) -> float:
    """Return how many times longer a step may be until it gains more than its share of the loss.

    A loss that has no lowest value (a policy gradient's) is not bent at any length. An adversary's
    loss may even fall ever faster along a step, and gain more than its slope promises.
    """
    step = seen.step
    gained = step.loss - seen.loss_after
    most = search.LONGER * step.slope  # one fall makes a step ten times shorter at most
    gained = min(max(step.slope, gained), most) if math.isfinite(gained) else step.slope
    share = bound.first_slope(step.loss, step.setting) * built_up(state, step)
    is_known = share > 0 and step.slope > 0 and "share" not in settings.without
    return max(share / gained, LEAST_SCALE) if is_known else math.inf


# At a probe


def aimed_factor(settings: Settings, state: RobustState, step: Proposal) -> float:
    """Return the factor that brings the averaged bend to its target; infinite without curvature.

    As a decay makes steps shorter, curvature grows. After the peak of a schedule that lowers the scale
    only if the step as scheduled bends too much: the decay shortens steps by itself.
    """
    aimed = belief.aimed_factor(state.belief, settings.target, scale_of(step))
    multiplier, peak = step.setting.multiplier, state.bound.peak
    if aimed < 1 and multiplier < peak:
        return min(1.0, aimed * peak / multiplier)
    return aimed


def count_bends(
    settings: Settings, state: RobustState, step: Proposal, bend: float, *, is_shortened: bool
) -> None:
    """Count the probes in a row that saw no bend, hardly a bend, or a bend that is too large.

    Of a step that had to be shortened the bend says nothing about the rate.
    """
    is_seen = search.is_visible(step) and step.slope > 0 and not is_shortened
    state.straight = state.straight + 1 if is_seen and bend < search.STRAIGHT else 0
    state.calm = state.calm + 1 if is_seen and bend < CALM else 0
    if step.slope > 0:  # of momentum that goes uphill nothing is known
        state.bent = state.bent + 1 if went_too_far(settings, state, step, bend) else 0
    if is_shortened or is_bending(settings, state, step, bend):
        state.smooth = 0
    elif is_seen:
        state.smooth = min(state.smooth + 1, SMOOTH_PROBES)


def largest_factor(settings: Settings, state: RobustState, step: Proposal, bend: float) -> float:
    """Return the largest factor of a probe; below 1 where the last ones all went too far."""
    if went_too_far(settings, state, step, bend):
        is_lasting = state.bent >= _lasting(step.setting)
        return max(_farthest(settings, state, step) / bend, DOWN) if is_lasting else 1.0
    if is_bending(settings, state, step, bend) or not search.is_visible(step):
        return 1.0
    if may_cross_a_valley(settings, state, step):
        return 1.0
    largest = largest_scales(settings, state, step.setting).cautious / scale_of(step)
    quickest = min(_climb(settings, state, step), _pace(settings, state, step, bend))
    if step.slope > 0 and setback.is_way_back(state.setback, scale_of(step)):
        quickest = max(quickest, _way_back(state, step, bend))
    return min(quickest, max(largest * built_up(state, step), 1.0))


def may_cross_a_valley(settings: Settings, state: RobustState, step: Proposal) -> bool:
    """Say whether SGD's last step downhill bent, or had to be shortened: then nothing rises yet.

    SGD may be crossing a valley, and one step along its floor shows little of its walls.
    """
    is_new = state.smooth < SMOOTH_PROBES and step.setting.builds_up
    return is_new and "smooth" not in settings.without


def size_of_loss(state: RobustState, step: Proposal) -> float:
    """Return how large the loss of a step is, or usual losses where these are larger."""
    return max(step.loss, bound.size(state.bound))


def affordable_part(settings: Settings, state: RobustState, step: Proposal, bend: float) -> float:
    """Return the part of a step of SGD that its loss can pay for; 1 for all of it.

    A step that goes too far, and whose noise would cost more than the whole loss, has come to a wall.
    Losses that hover about zero are as large as they differ.

    >>> from probstep import RobustRule
    >>> step = Proposal(loss=1.0, slope=8.0, setting=Setting(builds_up=True))
    >>> round(affordable_part(RobustRule(), RobustState(), step, bend=2.0), 3)
    0.2
    """
    most, excess = size_of_loss(state, step), bound.excess(step.slope, step.setting)
    costs_too_much = step.setting.builds_up and 0 < most < excess
    is_wall = costs_too_much and went_too_far(settings, state, step, bend)
    if not is_wall or "wall" in settings.without:
        return 1.0
    return max(NOISE * most / excess, LEAST_SCALE)


def is_paced(settings: Settings, state: RobustState, step: Proposal, bend: float) -> bool:
    """Say whether the scale must rise slowly, because momentum shows late what a rise does.

    Not while steps are straight, would be with all of their momentum, and promise little: then there is
    room. On a plateau steps are straight until it ends, and what they promise tells that it does. Nor
    with an optimizer that averages gradients, as Adam: no net has been seen to die of it.
    """
    setting = step.setting
    if not (setting.beta and setting.builds_up) or "pace" in settings.without:
        return False
    is_straight = step.slope > 0 and bend <= search.STRAIGHT * built_up(state, step)
    return not is_straight or 0 < PROMISE * state.bound.recent < bound.excess(step.slope, setting)


def name_of(
    settings: Settings,
    state: RobustState,
    step: Proposal,
    bend: float,
    *,
    aimed: float,
    largest: float,
) -> str:
    """Name what keeps a probe's factor from being higher, for the history."""
    is_restrained = is_bending(settings, state, step, bend)
    if aimed <= largest or is_restrained or may_cross_a_valley(settings, state, step):
        return "curvature"
    if largest == _pace(settings, state, step, bend):
        return "momentum"
    return "nothing" if largest >= settings.up else "noise"


def must_be_gentle(settings: Settings, state: RobustState, step: Proposal) -> bool:
    """Say whether steps must bend less than later ones may: the first steps of an optimizer like Adam.

    They have their full length at once, they move all parameters alike, and curvature is highest there.
    A net that they throw too far trains worse to the end, and neither losses nor probes show why.
    (With SGD's momentum the first steps are short.)
    """
    averages = step.setting.beta > 0 and not step.setting.builds_up
    return averages and is_beginning(state) and "gentle" not in settings.without


def is_bending(settings: Settings, state: RobustState, step: Proposal, bend: float) -> bool:
    """Say whether a step bends so much that the scale must not rise, whatever the averages say.

    They follow slowly, and a plateau may just have ended.
    """
    most = GENTLY_BENDING if must_be_gentle(settings, state, step) else BENDING
    is_bent = step.slope > 0 and bend > most and search.is_visible(step)
    return is_bent and "restraint" not in settings.without


def went_too_far(settings: Settings, state: RobustState, step: Proposal, bend: float) -> bool:
    """Say whether a step bends more than is aimed at.

    A step that cannot be seen bends by rounding alone: a loss that stays the same looks like a bend
    of 2.
    """
    is_too_far = step.slope > 0 and bend > _farthest(settings, state, step)
    return is_too_far and search.is_visible(step) and "restraint" not in settings.without


def _lasting(setting: Setting) -> int:
    """Return how many steps in a row must have gone too far, so that the scale falls.

    Momentum that sums gradients may be nearly orthogonal to that of a batch by chance. Then the slope
    along the step is small, and the step bends.
    """
    return MORE_BENT_PROBES if setting.beta and setting.builds_up else BENT_PROBES


def _farthest(settings: Settings, state: RobustState, step: Proposal) -> float:
    """Return the largest bend of a step that did not go too far."""
    is_gentle = must_be_gentle(settings, state, step)
    return min(GENTLY_TOO_FAR, settings.target) if is_gentle else settings.target


def has_risen(step: Proposal, bend: float) -> bool:
    """Say whether a step downhill, without momentum, raised the loss of its own batch.

    A second one in a row is shortened. Without noise, losses grow by some factor at every such step, so
    the second must not wait until the budget allows a probe.
    """
    return step.slope > 0 and bend > RISEN and search.is_visible(step) and not step.setting.beta


def built_up(state: RobustState, step: Proposal) -> float:
    """Return the part of its later length that the optimizer's momentum has reached.

    >>> step = Proposal(loss=1.0, slope=1.0, setting=Setting(beta=0.5, builds_up=True))
    >>> built_up(RobustState(t=2), step)
    0.75
    """
    return 1 - step.setting.beta**state.t if step.setting.builds_up else 1.0


def scale_of(step: Proposal) -> float:
    """Return the scale of a step, without what its schedule makes of it.

    >>> scale_of(Proposal(loss=1.0, slope=1.0, rate=0.1, setting=Setting(multiplier=0.5)))
    0.2
    """
    return step.rate / step.setting.multiplier


def _pace(settings: Settings, state: RobustState, step: Proposal, bend: float) -> float:
    """Return the largest factor of a probe that momentum can follow."""
    if not is_paced(settings, state, step, bend):
        return math.inf
    return float(PACE ** min(state.rested, RESTED))


def _way_back(state: RobustState, step: Proposal, bend: float) -> float:
    """Return the largest factor on the way back: not beyond its end, nor to a step that bends."""
    straight = BENDING / bend if bend > 0 else math.inf
    return min(straight, setback.BACK * state.setback.scale / scale_of(step))


def _climb(settings: Settings, state: RobustState, step: Proposal) -> float:
    """Return the largest factor of a probe that nothing else limits."""
    if "climb" in settings.without:
        return settings.up
    if is_coming_back(state, step):
        return max(settings.up, CLIMB)
    if not is_beginning(state):
        return settings.up
    aimed = aimed_factor(settings, state, step)
    return max(settings.up, min(CLIMB, aimed * built_up(state, step) / FAR))
