"""The traces of a forward pass: what modules and gradients held before it, and how it is put back."""

from collections.abc import Iterable, Iterator, KeysView
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from .kept import put_back
from .stateful import Declared, is_stateful

Held = dict[str, tuple[Tensor | None, Tensor | None]]  # the buffers of a module, and their copies

NOTHING = (None, None)
WORTH_WAITING = 1 << 20  # bytes: smaller buffers are copied rather than read from a device


class Buffers:
    """What the buffers of some modules held when each module was first seen, and stateful objects.

    Args:
        earlier: Whose copies are used again of what has not changed since.

    >>> norm = nn.BatchNorm1d(1)
    >>> before = Buffers()
    >>> before.see(norm)
    >>> _ = norm(torch.ones(2, 1))
    >>> before.restore()
    >>> norm.running_mean, norm.num_batches_tracked
    (tensor([0.]), tensor(0))
    """

    def __init__(self, earlier: "Buffers | None" = None) -> None:
        self._seen: dict[nn.Module, Held] = {}
        self._earlier = {} if earlier is None else earlier._seen
        self.declared = Declared()

    @property
    def modules(self) -> KeysView[nn.Module]:
        """The modules seen so far, as a view that grows."""
        return self._seen.keys()

    def see(self, module: nn.Module) -> None:
        """Remember the buffers of a module and of all below it, unless seen already."""
        waiting = [module]
        while waiting:  # not by `modules()`, whose generators are nested as deep as the modules
            part = waiting.pop()
            if part not in self._seen:
                self._seen[part] = _held(part, self._earlier.get(part))
                if is_stateful(part):
                    self.declared.see([part])
                waiting += [inner for inner in part._modules.values() if inner is not None]

    def see_again(self, others: "Iterable[Buffers]") -> None:
        """Remember what the buffers that others have seen hold now."""
        for other in others:
            for module in other._seen:  # with all the modules below
                if module not in self._seen:
                    self._seen[module] = _held(module)
            self.declared.see(other.declared.seen)

    def restore(self) -> None:
        """Put everything back: the tensors that were there, and what they held."""
        for module, held in self._seen.items():
            for name, (tensor, content) in held.items():
                if tensor is not None and content is not None:
                    put_back(tensor, content)
                module._buffers[name] = tensor
            if len(module._buffers) > len(held):
                for name in module._buffers.keys() - held.keys():
                    del module._buffers[name]
        self.declared.restore()


def _held(module: nn.Module, earlier: Held | None = None) -> Held:
    """Return the buffers of a module alone, each with a copy of what it holds."""
    if not module._buffers:
        return {}
    if earlier:
        return {
            name: (tensor, _content(tensor, *earlier.get(name, NOTHING)))
            for name, tensor in module._buffers.items()
        }
    return {name: (tensor, _content(tensor)) for name, tensor in module._buffers.items()}


def _content(
    tensor: Tensor | None, same: Tensor | None = None, earlier: Tensor | None = None
) -> Tensor | None:
    """Return a copy, or None for what no forward pass can write into: lazy or expanded buffers.

    An earlier copy of the same tensor serves as well if the tensor still holds that.
    """
    if tensor is None or is_lazy(tensor) or 0 in tensor.stride():
        return None
    if earlier is not None and same is tensor and _still_holds(tensor, earlier):
        return earlier
    return tensor.detach().clone()


def _still_holds(tensor: Tensor, content: Tensor) -> bool:
    """Say whether a tensor is known to hold what it held.

    The numbers are compared: neither a write through `.data` nor BatchNorm's own shows in `_version`.
    """
    if type(tensor) is not Tensor or tensor.dtype is not content.dtype or tensor.is_meta:
        return False
    if not tensor.is_cpu and tensor.nbytes < WORTH_WAITING:
        return False
    return tensor.layout is torch.strided and torch.equal(tensor, content)


@contextmanager
def gradients_set_aside(params: Iterable[Tensor]) -> Iterator[None]:
    """Hide every `.grad` meanwhile, so that whatever runs can neither clear nor add to it.

    A view of something larger is copied, too: DistributedDataParallel writes into its buckets.

    >>> w = torch.ones(1, requires_grad=True)
    >>> w.grad = torch.ones(1)
    >>> with gradients_set_aside([w]):
    ...     (w * 5).sum().backward()
    >>> w.grad
    tensor([1.])
    """
    kept = [(p, grad := p.grad, None if grad is None else _content_of_view(grad)) for p in params]
    try:
        for p, grad, _ in kept:
            if grad is not None:
                p.grad = None
        yield
    finally:
        for p, grad, content in kept:
            p.grad = grad
            if grad is not None and content is not None:
                put_back(grad, content)


def _content_of_view(grad: Tensor) -> Tensor | None:
    if not grad._is_view():  # as usual
        return None
    # Nobody can write into an expanded gradient, so there is nothing to put back.
    is_expanded = grad.layout is torch.strided and 0 in grad.stride()
    return None if is_expanded else grad.detach().clone()
