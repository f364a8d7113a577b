"""Numbers on a device: added up in float64, and read in one transfer."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

YES, NO = (torch.tensor(value, device="cpu", dtype=torch.float64) for value in (1.0, 0.0))


def wide(tensor: Tensor) -> Tensor:
    """Return a tensor in float64, or in the widest format that its device has.

    >>> wide(torch.tensor(1.5)).dtype
    torch.float64
    """
    return tensor.to(_wide(tensor.device))


def pack(*scalars: Tensor) -> Tensor:
    """Return device scalars as one vector, to be summed over ranks or read in one transfer.

    >>> pack(torch.tensor(1.5), torch.tensor(True))
    tensor([1.5000, 1.0000], dtype=torch.float64)
    """
    device = scalars[0].device
    dtype = _wide(device)
    alike = [s if s.dtype is dtype and s.device == device else s.to(device, dtype) for s in scalars]
    return torch.stack(alike).detach()


def flag(is_set: bool) -> Tensor:
    """Return 1 or 0 as a scalar for `pack`: the same two tensors always.

    >>> flag(True), flag(False)
    (tensor(1., dtype=torch.float64), tensor(0., dtype=torch.float64))
    """
    return YES if is_set else NO


def total(terms: Iterable[Tensor]) -> Tensor:
    """Return the sum of scalars; 0 without any.

    >>> total([torch.tensor(1.5), torch.tensor(2)])
    tensor(3.5000, dtype=torch.float64)
    """
    terms = list(terms)
    if not terms:
        return torch.zeros(())
    device = terms[0].device
    if any(term.dtype != terms[0].dtype or term.device != device for term in terms):
        terms = [term.to(device, _wide(device)) for term in terms]
    return torch.stack(terms).sum(dtype=_wide(device))


def totals(*lists: list[Tensor]) -> Sequence[Tensor]:
    """Return the sum of each list; at once, and the same bits, where they are alike."""
    if all(len(one) == 1 for one in lists):
        return [wide(term) for (term,) in lists]
    kinds = {(term.dtype, term.device) for one in lists for term in one}
    if len(kinds) != 1 or len({len(one) for one in lists}) != 1:
        return [total(one) for one in lists]
    return totals_at_once(*lists)


def totals_at_once(*lists: list[Tensor]) -> Sequence[Tensor]:
    """Return the sum of each list; all are equally long, of one format and on one device."""
    rows = torch.stack([term for one in lists for term in one]).view(len(lists), -1)
    return rows.sum(1, dtype=_wide(rows.device)).unbind()


def _wide(device: torch.device) -> torch.dtype:
    # Apple's MPS has no float64.
    return torch.float32 if device.type == "mps" else torch.float64
