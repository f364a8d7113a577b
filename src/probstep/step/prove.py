"""Prove that the loss a probe sees is the loss the step descends on.

`same.prove_same` evaluates the loss once more where the step begins: it must be the same number.
`slope_factor` compares what the gradients promise with what the loss does along a tiny step.
`Check` says when: on the first probed step, on a search, and where a probe saw what no step explains.

Nothing here leaves a trace. Every decision is made on numbers that were summed over the ranks.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..memory import Proof
from ..rules import Observation, Proposal
from .ranks import Ranks
from .same import CONSTANT, SINGLE, Evaluate, NotTheSameLoss, prove_same
from .trial import Trial

MEASURED = 100.0  # roundings that a step must promise before its probe is judged
SHORTEST = 1000.0  # roundings that the first look promises; a tenth with numbers of 16 bits
NOISE = 4.0  # roundings that a re-evaluated loss is uncertain by
GROWTH = 5.0  # from a length that shows too little to the next
FAR = 1e6  # times the loss: a loss that does not change though this is promised is constant
STRAIGHT = 0.1  # the two directions must agree so well, else a bend or a kink is seen
FAR_OFF = 4.0  # for a slope so many times off, less agreement is enough:
STRAIGHT_FAR_OFF = 0.5  # the two directions agree so well
CLEAR = 0.1  # a slope this close to the promised one is the promised one
LONGER = 1.1  # how many times longer a second length must be to tell where a straight line leads
CLEAR_SHORT = 1 / 3  # the same for numbers of 16 bits
USUAL = (0.45, 1.1)  # between them lies the decrease of a first step, over the promised one
UNUSUAL = 4.0  # a change of the loss by so many times the promised one is looked into


class Finding(NamedTuple):
    """What a look at the slope has found.

    Args:
        factor: Of the gradients over the loss's own slope; 1 if they agree, 0 if it cannot be told.
        is_constant: The loss did not change at all, however long the step.
    """

    factor: float
    is_constant: bool = False


UNTOLD = Finding(0.0)
AGREED = Finding(1.0)


def rounding_of(loss: Tensor, params: Sequence[Tensor], short: float) -> float:
    """Return the relative rounding of a loss: never finer than that of the numbers it comes from.

    Args:
        loss: The loss.
        params: The parameters: a float64 loss of float32 parameters is no finer than these.
        short: The rounding of the coarsest 16-bit format in which the model computed; 0 without any.

    >>> rounding_of(torch.ones((), dtype=torch.float64), [torch.ones(1)], short=0.0) == SINGLE
    True
    """
    formats = {t.dtype for t in (loss, *params) if t.is_floating_point()}
    eps = {torch.finfo(dtype).eps for dtype in formats}
    fine = max((e for e in eps if e <= SINGLE), default=SINGLE)
    coarse = max([short, *(e for e in eps if e > SINGLE)])
    # A mean over numbers of 16 bits is finer than these, unless it is itself one of them.
    return max(fine, coarse / 10 if torch.finfo(loss.dtype).eps <= SINGLE else coarse)


# The slope that the gradients promise is the loss's own


def looks_right(seen: Sequence[Observation], rounding: float) -> bool:
    """Say whether a search has already shown that the loss falls as the gradients promise.

    At the shortest lengths that show anything, extrapolated to length zero, the observed decrease must
    be the promised one: the ratio 2.

    Args:
        seen: What the search saw.
        rounding: The relative rounding of the loss.

    >>> near = Observation(Proposal(loss=1.0, slope=1e-4), loss_after=1.0 - 1e-4)
    >>> looks_right([near], rounding=1e-7)
    True
    >>> halved = Observation(Proposal(loss=1.0, slope=1e-4), loss_after=1.0 - 5e-5)
    >>> looks_right([halved], rounding=1e-7)
    False
    """
    steps = [s for s in seen if s.step.slope > 0 and math.isfinite(s.loss_after)]
    visible = [s for s in steps if s.step.slope >= MEASURED / 2 * rounding * abs(s.step.loss)]
    if not visible:
        return False
    first, *others = sorted(visible, key=lambda s: s.step.slope)
    shortest = [first, *(s for s in others if s.step.slope > LONGER * first.step.slope)][:2]
    shares = [(s.step.loss - s.loss_after) / s.step.slope for s in shortest]
    if len(shortest) == 1:
        return abs(shares[0] - 1) < CLEAR
    a, b = (s.step.slope for s in shortest)
    at_zero = (shares[0] * b - shares[1] * a) / (b - a)
    return abs(at_zero - 1) < CLEAR and abs(shares[0] - 1) < 2 * CLEAR


def _looks_wrong(seen: Observation, rounding: float) -> bool:
    """Say whether a loss fell by more than it can where it is convex, or by far less than promised.

    A step that a bound or noise has stretched is meant to leave the straight part of the loss.
    """
    step = seen.step
    promised, drop = step.slope * step.step_factor, step.loss - seen.loss_after
    share = drop / promised if promised else math.nan
    if not max(abs(promised), abs(drop)) > MEASURED / 2 * rounding * abs(step.loss):
        return False
    low, high = USUAL
    return share > high or (share < low and step.step_factor == 1.0)


def slope_factor(
    trial: Trial, evaluate: Evaluate, loss: Tensor, step: Proposal, rounding: float
) -> Finding:
    """Measure by what factor the gradients differ from the slope of the loss.

    The loss is evaluated at a tiny step forwards and at one backwards. Along a smooth loss the two
    changes are alike. If they are not, a bend or a kink lies between, and nothing is claimed. A length
    at which the loss does not change visibly is made longer: gradients may be too large by any factor,
    and a constant loss never changes. A length at which the loss bends is made shorter, as long as the
    change is visible.

    Args:
        trial: The step; its length is as before afterwards.
        evaluate: Computes the loss again.
        loss: The loss where the step began.
        step: The step at its present length.
        rounding: The relative rounding of the loss.
    """
    size = abs(step.loss)
    noise = NOISE * rounding * size
    promised = abs(step.slope * step.step_factor / trial.length) if trial.length else 0.0
    if not (0 < promised < math.inf and 0 < size < math.inf):
        return UNTOLD
    shortest = SHORTEST / 10 if rounding > 10 * SINGLE else SHORTEST
    length, visible = shortest * rounding * size / promised, shortest / 10 * rounding * size
    if not min(length, visible) > 0:  # a loss so near to 0 has no changes that are visible
        return UNTOLD
    is_constant, has_grown = True, False
    with trial.aside() as aside:
        while length * promised < FAR * size:
            forth = aside.look(length, evaluate, loss)
            back = aside.look(-length, evaluate, loss)
            if not (forth.is_usable and back.is_usable):
                return UNTOLD
            is_constant &= forth.is_unchanged and back.is_unchanged
            change = max(abs(forth.drop), abs(back.drop))
            if change < visible:
                length, has_grown = length * GROWTH, True
                continue
            found = _judged(forth.share, back.share, noise / (length * promised), rounding)
            if found is not UNTOLD or has_grown or change < GROWTH * visible:
                return found
            length /= GROWTH  # a bend is smaller there, and the change still visible
    return Finding(0.0, is_constant=True) if is_constant else UNTOLD


def _judged(forth: float, back: float, error: float, rounding: float) -> Finding:
    """Judge by the shares of the promise that were kept forwards and backwards, each up to an error."""
    share, spread = (forth + back) / 2, abs(forth - back) / 2
    is_far_off = not 1 / FAR_OFF < share < FAR_OFF
    if not spread <= (STRAIGHT_FAR_OFF if is_far_off else STRAIGHT) * abs(share):
        return UNTOLD
    clear = CLEAR_SHORT if rounding > 10 * SINGLE else CLEAR
    return Finding(1 / share) if abs(share - 1) > clear + spread + error else AGREED


# The checks of one probed step


class Check:
    """What is checked while one step is probed.

    Args:
        evaluate: Computes the loss again.
        loss: The loss where the step begins.
        params: The parameters.
        proof: What is known already; it changes.
        ranks: Who else decides.
        short: As for `prove_same`.
    """

    def __init__(
        self,
        evaluate: Evaluate,
        loss: Tensor,
        params: Sequence[Tensor],
        proof: Proof,
        ranks: Ranks,
        short: Callable[[], float],
    ) -> None:
        self._evaluate, self._loss, self._proof = evaluate, loss, proof
        self._params, self._ranks, self._short = params, ranks, short
        self._seen: list[Observation] = []
        self._is_searching = self._is_new = False

    def begin(self, *, is_searching: bool) -> None:
        """Before anything moves: prove the loss the same, on the first probed step and on a search."""
        proof, self._is_searching = self._proof, is_searching
        # A search that takes several steps, because the first show nothing, is proved once.
        self._is_new = not proof.is_same or (is_searching and not proof.is_searching)
        proof.is_searching = is_searching
        if self._is_new:
            proof.is_same = self._is_proved()

    def believes(self, trial: Trial, seen: Observation) -> bool:
        """After a probe: say whether it saw the same function, as far as that can be told."""
        self._seen.append(seen)
        if self._is_new or self._is_searching or not self._is_odd(seen):
            return True
        proof = self._proof
        proof.doubts += 1
        # Odd probes must cost little even if all are odd: the 1st, 2nd, 4th, 8th ... is looked into.
        if proof.doubts.bit_count() == 1 or proof.is_contradicted:
            proof.is_contradicted = not self._is_still_same(trial, seen)
        return not proof.is_contradicted

    def end(self, trial: Trial, *, is_told: bool) -> None:
        """After the last probe: compare the gradients with the slope of the loss.

        It is done once. The first search does it, because it has seen tiny lengths. A later search only
        notes that they agree, and never looks further: near convergence that takes dozens of passes.
        Without a search it costs two evaluations, and is done in two cases. In the first case
        nobody gave the loss: then the re-evaluation computed it, and the first check could not fail. In
        the second case the first probe looks wrong.
        """
        if not self._seen:
            return
        last = self._seen[-1]
        if not self._is_searching:
            if not self._is_new or self._proof.is_steep:
                return
            if is_told and not (self._is_frozen(last) or _looks_wrong(last, self._rounding)):
                return
        found = AGREED
        if not (self._is_searching and looks_right(self._seen, self._rounding)):
            if self._proof.is_steep:
                return
            found = slope_factor(trial, self._evaluate, self._loss, last.step, self._rounding)
        if found.is_constant:
            raise NotTheSameLoss(CONSTANT)
        self._proof.is_steep, self._proof.slope_factor = True, found.factor

    @property
    def _rounding(self) -> float:
        """The relative rounding of the loss, as far as is known by now."""
        return rounding_of(self._loss, self._params, self._short())

    def _is_proved(self) -> bool:
        return prove_same(self._evaluate, self._loss, self._ranks, short=self._short)

    def _is_odd(self, seen: Observation) -> bool:
        """Say whether the loss changed by far more than its slope promises, or not at all."""
        step = seen.step
        change, promised = abs(step.loss - seen.loss_after), abs(step.slope * step.step_factor)
        if UNUSUAL * promised < change < math.inf:  # the rounding is asked for only then
            visible = MEASURED * max(step.resolution, self._rounding * abs(step.loss))
            return UNUSUAL * promised + visible < change or self._is_frozen(seen)
        return self._is_frozen(seen)

    def _is_frozen(self, seen: Observation) -> bool:
        """Say whether the loss is the same number though the step should have shown."""
        step = seen.step
        if seen.loss_after != step.loss:
            return False
        visible = MEASURED * self._rounding * abs(step.loss)
        return abs(step.slope * step.step_factor) > visible

    def _is_still_same(self, trial: Trial, seen: Observation) -> bool:
        """Say whether an odd probe is explained by the step: look where the step began, or farther."""
        if self._is_frozen(seen):
            step = seen.step
            return not slope_factor(
                trial, self._evaluate, self._loss, step, self._rounding
            ).is_constant
        with trial.aside() as aside:
            aside.go(0.0)
            try:
                self._is_proved()
            except NotTheSameLoss:
                return False
        return True
