"""Write what an optimizer adapts to TensorBoard.

    record(opt, SummaryWriter("runs/1"))

Needs the extra: pip install 'probstep[tensorboard]'.
"""

from typing import Any

from torch.utils.hooks import RemovableHandle

from ..optimizer import ProbStep
from .news import News

try:
    from torch.utils.tensorboard import SummaryWriter
except ImportError as error:
    raise ImportError(
        "probstep.integrations.tensorboard needs TensorBoard: pip install 'probstep[tensorboard]'."
    ) from error


def record(
    optimizer: ProbStep, writer: SummaryWriter, every: int = 1, prefix: str = "probstep"
) -> RemovableHandle:
    """Write `optimizer.metrics()` after its steps, and its events as texts.

    Args:
        optimizer: Whose metrics to write.
        writer: Where to; flushing and closing it stays with its owner.
        every: After how many steps the metrics; events are written at once.
        prefix: The folder of the curves, and of the text `events`.

    Returns:
        A handle whose `remove()` ends the writing.
    """
    news = News(optimizer)

    def write(optimizer: Any, *_: object) -> None:
        for event in news.read():
            writer.add_text(f"{prefix}/events", str(event), event.step)
        numbers = optimizer.metrics()
        if numbers["steps"] % every == 0:
            for name, number in numbers.items():
                writer.add_scalar(f"{prefix}/{name}", number, numbers["steps"])

    return optimizer.register_step_post_hook(write)
