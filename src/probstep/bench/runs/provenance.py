"""What software and hardware made a record: versions, commit, device."""

import functools
import importlib.metadata
import platform
import subprocess
from pathlib import Path

import torch
from torch import nn

import probstep

PACKAGES = ("numpy", "scipy", "scikit-learn")


@functools.cache
def versions(package: str | None = None) -> dict[str, str]:
    """The versions of all that takes part in the arithmetic.

    >>> versions()["torch"] == torch.__version__
    True

    Args:
        package: One more package, that of the method.
    """
    names = (*PACKAGES, *([package] if package else []))
    found = {name: _installed(name) for name in names}
    return {
        "probstep": probstep.__version__,
        "torch": str(torch.__version__),
        **{name: version for name, version in found.items() if version is not None},
        "python": platform.python_version(),
        "platform": platform.platform(),
    }


@functools.cache
def commit() -> str | None:
    """The commit of probstep's own source, marked if it was changed; None outside a checkout."""
    head = _git("rev-parse", "HEAD")
    if head is None or _git("ls-files", "--error-unmatch", Path(__file__).name) is None:
        return None
    return head + ("-dirty" if _git("status", "--porcelain", "-uno") else "")


def device_name(model: nn.Module) -> str:
    """Where the model's parameters live.

    >>> device_name(nn.Linear(1, 1))
    'cpu'
    """
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def _installed(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _git(*arguments: str) -> str | None:
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
