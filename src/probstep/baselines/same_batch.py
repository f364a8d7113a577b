"""The loss of one batch as a function of the parameters: same randomness each time, no trace.

A line search evaluates one batch at several points. It must see the same dropout masks at each, and
must not move running statistics or random streams by searching: this is the probe of
`probstep.step.replay`, recorded at the first evaluation and replayed at every further one.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from probstep.baselines.stepping import Closure
from probstep.step.replay import Tape


def gradients(
    loss: Tensor,
    params: Sequence[Tensor],
    create_graph: bool = False,
    retain_graph: bool | None = None,
) -> list[Tensor | None]:
    """Return the gradient by each parameter; None where it is frozen or the loss ignores it."""
    free = [p for p in params if p.requires_grad]
    grads = torch.autograd.grad(
        loss, free, create_graph=create_graph, retain_graph=retain_graph, allow_unused=True
    )
    found = dict(zip(free, grads, strict=True))
    return [found.get(p) for p in params]


class SameBatch:
    """A closure that returns its loss without backward, evaluated again and again.

    Args:
        closure: Evaluates the loss of the batch at the present parameters.
        params: The parameters it depends on.

    Example:
        >>> w = torch.nn.Parameter(torch.ones(100))
        >>> batch = SameBatch(lambda: torch.nn.functional.dropout(w, 0.5).sum(), [w])
        >>> loss, grads = batch.first_pass()
        >>> batch.loss_again() == loss.item()
        True
    """

    def __init__(self, closure: Closure | None, params: Sequence[Tensor]) -> None:
        if closure is None:
            raise ValueError(
                "This method evaluates the loss itself: call step(closure) with a closure that "
                "returns the loss of the batch and does not run backward."
            )
        self._closure: Closure = closure
        self._params = params
        self._devices = {p.device for p in params}
        self._tape = Tape()

    def first_pass(self, create_graph: bool = False) -> tuple[Tensor, list[Tensor | None]]:
        """Return the loss and its gradients, which are also put into `.grad`."""
        with self._tape.recording("closure", self._devices), torch.enable_grad():
            loss = self._evaluate()
            grads = gradients(loss, self._params, create_graph)
        for p, grad in zip(self._params, grads, strict=True):
            p.grad = None if grad is None else grad.detach()
        return loss.detach(), grads

    def loss_again(self) -> float:
        """Return the loss of the batch where the parameters are now."""
        with torch.no_grad():
            return self._replay(self._evaluate).item()

    def gradients_again(self) -> list[Tensor | None]:
        """Return the gradients of that loss, leaving `.grad` as it is."""
        found: list[Tensor | None] = []

        def forward() -> Tensor:
            # Inside the replay: restoring buffers afterwards would invalidate the graph.
            loss = self._evaluate()
            found.extend(gradients(loss, self._params))
            return loss

        with torch.enable_grad():
            self._replay(forward)
        return found

    def _replay(self, forward: Callable[[], Tensor]) -> Tensor:
        value, _ = self._tape.replay(forward, self._devices)
        return value

    def _evaluate(self) -> Tensor:
        loss = self._closure()
        if loss.dim() != 0:
            raise ValueError(
                f"The closure must return one loss, got the shape {tuple(loss.shape)}. "
                "Average over the batch."
            )
        return loss
