"""Prove that the loss a probe sees is the loss the step descends on.

`prove_same` evaluates the loss once more where the step begins: it must be the same number.
`slope_factor` compares what the gradients promise with what the loss does along a tiny step.
`Check` says when: on the first probed step, on a search, and where a probe saw what no step explains.

Nothing here leaves a trace. Whatever is decided is decided on numbers that were summed over the ranks.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
from torch import Tensor

from ..memory import Proof
from ..rules import Observation, Proposal
from .displacement import pack, wide
from .ranks import Ranks
from .trial import Trial

Evaluate = Callable[[], tuple[Tensor, bool]]  # the loss again, and whether random numbers agree

ROUNDINGS = 64.0  # of the loss: what kernels that add in any order may change
SHARE_OF_SHORT = 1 / 64  # of a 16-bit rounding: what they may change in a mean over 16-bit numbers
SINGLE = torch.finfo(torch.float32).eps

MEASURED = 100.0  # roundings that a step must promise before its probe is judged
SHORTEST = 1000.0  # roundings that the first look promises; a tenth with numbers of 16 bits
NOISE = 4.0  # roundings that a re-evaluated loss is uncertain by
GROWTH = 5.0  # from a length that shows too little to the next
FAR = 1e6  # times the loss: where the promised change is so large, a constant has shown itself
STRAIGHT = 0.1  # the two directions must agree so well, else a bend or a kink is seen
FAR_OFF = 4.0  # a slope so many times off is told by less:
STRAIGHT_FAR_OFF = 0.5  # the two directions agree so well
CLEAR = 0.1  # a slope this close to the promised one is the promised one
CLEAR_SHORT = 1 / 3  # the same for numbers of 16 bits
USUAL = (0.45, 1.1)  # between them lies the decrease of a first step, over the promised one
UNUSUAL = 4.0  # a change of the loss by so many times the promised one is looked into


class NotTheSameLoss(RuntimeError):  # noqa: N818
    """What was evaluated again is not the loss whose gradients were taken. Nothing was moved.

    The message says both numbers, and the usual causes with their cures, the likeliest first.
    `ProbStep(..., check=False)` leaves the check out.
    """


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
    """Return the relative rounding of a loss, at best that of what it was computed from.

    Args:
        loss: The loss.
        params: The parameters: a float64 loss of float32 parameters is no finer than these.
        short: That of the coarsest 16-bit format in which the model computed; 0 without any.

    >>> rounding_of(torch.ones((), dtype=torch.float64), [torch.ones(1)], short=0.0) == SINGLE
    True
    """
    formats = {t.dtype for t in (loss, *params) if t.is_floating_point()}
    eps = {torch.finfo(dtype).eps for dtype in formats}
    fine = max((e for e in eps if e <= SINGLE), default=SINGLE)
    coarse = max([short, *(e for e in eps if e > SINGLE)])
    # A mean over numbers of 16 bits is finer than these, unless it is itself one of them.
    return max(fine, coarse / 10 if torch.finfo(loss.dtype).eps <= SINGLE else coarse)


# The first check: the same number where the step begins


def prove_same(
    evaluate: Evaluate, loss: Tensor, ranks: Ranks, *, short: Callable[[], float]
) -> bool:
    """Evaluate the loss where the step begins; raise NotTheSameLoss if it is another function's.

    Args:
        evaluate: Computes the loss again.
        loss: What it must be.
        ranks: Who else decides.
        short: Tells the rounding of the coarsest 16-bit format in which the model computed, 0 without
            any; asked after the evaluation, which may be the first that was watched.

    Returns:
        Whether it was proved; False where it cannot be told: the loss is not finite, or the random
        numbers are known to differ.
    """
    version = loss._version
    value, is_paired = evaluate()
    is_old = _is_same_memory(value, loss) and value._version == version
    flags = [torch.tensor(float(flag)) for flag in (not is_paired, is_old)]
    first, again = _share(loss, ranks), _share(value, ranks)
    shares = pack(first, again, (value != loss).any(), *flags)
    f, g, differs, unpaired, old = ranks.total(shares).tolist()
    if old:
        raise NotTheSameLoss(OLD_TENSOR)
    if unpaired or not math.isfinite(f):
        return False
    if not differs:
        return True
    # The first pass ran with gradients, which may take other kernels. DistributedDataParallel would
    # wait for the backward.
    mode: AbstractContextManager[object] = torch.enable_grad() if ranks.size == 1 else nullcontext()
    with mode:
        second, _ = evaluate()
    second = second.detach()
    coarsest = short()
    noise = _noise(loss, coarsest)
    apart, later = _distance(value, loss), _distance(second, loss)
    is_noise = (apart <= noise) & (later <= noise)
    is_of_mode = (later == 0) & (apart <= max(1e-5, coarsest))
    unsteady = _distance(second, value) > noise
    shares = pack(_share(second, ranks), ~(is_noise | is_of_mode), unsteady, later > 0)
    h, others, unsteady_ones, still_other = ranks.total(shares).tolist()
    if others:
        raise NotTheSameLoss(
            not_the_same(
                f,
                g,
                h,
                is_steady=not unsteady_ones,
                is_of_mode=ranks.size == 1 and not still_other,
            )
        )
    return True


def _share(loss: Tensor, ranks: Ranks) -> Tensor:
    return wide(loss.detach()).mean() / ranks.size


def _distance(a: Tensor, b: Tensor) -> Tensor:
    """Return how far apart two losses are, relative to their size."""
    return (wide(a.detach()) - wide(b.detach())).abs().max() / wide(b.detach()).abs().max()


def _noise(loss: Tensor, short: float) -> float:
    eps = torch.finfo(loss.dtype).eps
    if eps > SINGLE:
        return eps  # 64 of these would be half of the loss
    return max(ROUNDINGS * max(eps, SINGLE), SHARE_OF_SHORT * short)


def _is_same_memory(value: Tensor, loss: Tensor) -> bool:
    if value is loss:
        return True
    is_plain = type(value) is type(loss) is Tensor and value.device.type != "meta"
    return is_plain and value.data_ptr() == loss.data_ptr() and value.shape == loss.shape


OLD_TENSOR = (
    "The loss was to be evaluated again, and what came back is the very tensor from before: it cannot "
    "change when the parameters do. Nothing was moved. Compute the loss anew: "
    "reevaluate=lambda: loss_fn(model(x), y), not reevaluate=lambda: loss."
)

CONSTANT = (
    "The loss was evaluated again after steps of very different lengths, and it never changed: it does "
    "not depend on the parameters that the optimizer moves. Nothing was moved. Usual causes: "
    "1. a number from before is returned (loss.item(), a tensor that was kept): compute the loss anew, "
    "from the batch; 2. the loss is computed with a copy of the model (an averaged one, one made before "
    "the optimizer, another rank's): compute it with the model whose parameters the optimizer has. "
    "ProbStep(..., check=False) leaves this check out."
)

# Each cause with its cure. Which come first depends on what was seen.
NEW_BATCH = (
    "it draws a new batch each time (next(batches) inside the closure): draw the batch first, then "
    "call step()"
)
LATE_LAMBDA = (
    "a lambda in a loop binds late, and sees the last batch: bind what it needs, "
    "lambda x=x, y=y: loss_fn(model(x), y)"
)
OTHER_WEIGHT = (
    "the loss is divided or weighted in one place only (loss / k for k micro-batches): give both "
    "alike, step(loss=loss / k, reevaluate=lambda: ... / k)"
)
OWN_GENERATOR = (
    "random numbers come from a generator of your own (torch.Generator, numpy's default_rng), which "
    "cannot be rewound: draw them before step(), or use the global streams"
)
DROPOUT = (
    "dropout or other noise was drawn outside `with opt.forward_pass():`: compute the whole loss "
    "inside it, or use step(closure)"
)
CARRIED = (
    "the model carries something from one call to the next outside its buffers (a hidden state, a "
    "moving average): put it back before you evaluate again"
)
MODE = (
    "the model differs between training and evaluation, or between two calls (model.eval() inside): "
    "call it alike both times"
)
OTHER_STEPPED = (
    "another optimizer has moved other parameters of the model since the loss was computed: give "
    "step() a closure, which computes the loss anew, or let one optimizer have all the parameters, in "
    "several groups"
)
GRAD_MODE = (
    "the model computes something else where gradients are off (torch.is_grad_enabled(), a compiled "
    "model with dropout): call backward inside the closure, so that gradients are always on"
)


def not_the_same(f: float, g: float, h: float, *, is_steady: bool, is_of_mode: bool) -> str:
    """Return the message: the numbers, and the causes in the order in which they are likely.

    Args:
        f: The first loss.
        g: The loss evaluated again.
        h: The loss evaluated once more.
        is_steady: The last two agree.
        is_of_mode: The last, with gradients enabled, is the first.
    """
    if is_of_mode:
        causes = [GRAD_MODE, NEW_BATCH, CARRIED]
    elif is_steady:
        causes = [LATE_LAMBDA, OTHER_WEIGHT, OTHER_STEPPED, MODE, NEW_BATCH, DROPOUT]
        if (k := _whole_ratio(f, g)) is not None:
            causes = [f"they differ by a factor of {k}: {OTHER_WEIGHT}", LATE_LAMBDA, MODE]
    else:
        causes = [NEW_BATCH, OWN_GENERATOR, DROPOUT, CARRIED, LATE_LAMBDA]
    listed = "; ".join(f"{number}. {cause}" for number, cause in enumerate(causes, 1))
    return (
        f"The loss was {f:.9g}. Evaluated again, with the parameters unchanged, it was {g:.9g}, and "
        f"once more {h:.9g}: it is not the same loss of the same batch, so a probe would compare two "
        f"different functions. Nothing was moved. Usual causes, the likeliest first: {listed}. "
        "ProbStep(..., check=False) leaves this check out."
    )


def _whole_ratio(f: float, g: float) -> str | None:
    """Return k or 1/k if one number is so many times the other.

    >>> _whole_ratio(1.0, 4.0), _whole_ratio(1.0, 1.1)
    ('4', None)
    """
    if not f * g > 0:
        return None
    large, small = max(abs(f), abs(g)), min(abs(f), abs(g))
    k = round(large / small) if large / small < 1e6 else 0
    return str(k) if k > 1 and abs(large / small - k) < 1e-5 * k else None


# The second check: the slope that the gradients promise is the loss's own


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
    shortest = sorted(visible, key=lambda s: s.step.slope)[:2]
    if not shortest:
        return False
    shares = [(s.step.loss - s.loss_after) / s.step.slope for s in shortest]
    if len(shortest) == 1:
        return abs(shares[0] - 1) < CLEAR
    a, b = (s.step.slope for s in shortest)
    if b <= a:
        return False
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

    The loss is evaluated a tiny step forth and back. Along a smooth loss the two changes are alike. If
    they are not, a bend or a kink lies between, and nothing is claimed. A length that shows nothing is
    made longer: gradients may be too large by any factor, and a constant never shows. One that bends
    is made shorter while it shows.

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
    """Return what the shares of the promise say that were kept forth and back, each up to an error."""
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
        # A loss that is always so must cost little: the 1st, 2nd, 4th, 8th ... time is looked into.
        if proof.doubts.bit_count() == 1 or proof.is_contradicted:
            proof.is_contradicted = not self._is_still_same(trial, seen)
        return not proof.is_contradicted

    def end(self, trial: Trial, *, is_told: bool) -> None:
        """After the last probe: compare the gradients with the slope of the loss.

        A search does it always, for it has seen tiny lengths. Otherwise it costs two evaluations, and
        is done once: where the first check could not fail, because nobody told the loss, so that it
        was computed by what is evaluated again; and where the first probe looks wrong.
        """
        if not self._seen:
            return
        last = self._seen[-1]
        is_due = not is_told or self._is_frozen(last) or _looks_wrong(last, self._rounding)
        if not (self._is_searching or (is_due and self._is_new and not self._proof.is_steep)):
            return
        found = AGREED
        if not (self._is_searching and looks_right(self._seen, self._rounding)):
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
        visible = MEASURED * max(step.resolution, self._rounding * abs(step.loss))
        is_far = UNUSUAL * promised + visible < change < math.inf
        return is_far or self._is_frozen(seen)

    def _is_frozen(self, seen: Observation) -> bool:
        """Say whether the loss is the same number though the step should have shown."""
        step = seen.step
        visible = MEASURED * self._rounding * abs(step.loss)
        return seen.loss_after == step.loss and abs(step.slope * step.step_factor) > visible

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
