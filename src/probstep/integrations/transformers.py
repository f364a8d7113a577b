"""Adapt the learning rate of a Transformers `Trainer`, of any subclass, in one line.

    adapt(trainer).train()

The trainer stays what it is; five of its methods are wrapped, on this instance only:
`create_optimizer` adapts what it makes, `create_scheduler` hands over how many steps there are,
`training_step` keeps its micro-batch, the accelerator's clipping reports its factor, and `log` adds the
effective rate and the events since the last log. A probe is `training_step` again without gradients and
without its backward.

Needs the extra: pip install 'probstep[transformers]'.
"""

import copy
from collections.abc import Callable
from typing import Any, TypeVar

from torch import Tensor

from ..optimizer import ProbStep
from .accelerate import AcceleratedWindow, report_clipping
from .borrowed import ignore, standing_in
from .news import News
from .rates import rates_of
from .steps import Horizon, set_horizon

try:
    from accelerate.optimizer import AcceleratedOptimizer
    from transformers import Trainer
except ImportError as error:
    raise ImportError(
        "probstep.integrations.transformers needs Transformers and Accelerate: "
        "pip install 'probstep[transformers]'."
    ) from error

AnyTrainer = TypeVar("AnyTrainer", bound=Trainer)
WITHOUT_DECAY = ("constant", "constant_with_warmup")


def adapt(trainer: AnyTrainer, *, horizon: Horizon = None, **settings: Any) -> AnyTrainer:
    """Make a trainer adapt the learning rate of its optimizer; everything else stays.

    Args:
        trainer: A Trainer, of any subclass, before `train()`. Its optimizer, schedule, accumulation,
            clipping and checkpoints work as before; `learning_rate` is the rate to start from. An
            optimizer that is a ProbStep already, as `optimizer_cls_and_kwargs` makes one of
            `probstep.AdamW`, keeps its own settings.
        horizon: The `horizon` of ProbStep; True takes the trainer's own number of steps.
        settings: Those of `ProbStep`: `rule` (by default RobustRule), `probe`, `lower_bound`, `noise`.
    """
    if trainer.is_deepspeed_enabled:
        raise ValueError(
            "DeepSpeed steps inside its own engine, where no optimizer can be adapted. Use DDP or FSDP."
        )
    schedule = str(getattr(trainer.args.lr_scheduler_type, "value", trainer.args.lr_scheduler_type))
    if horizon is not None and trainer.lr_scheduler is None and schedule not in WITHOUT_DECAY:
        raise ValueError(
            f"lr_scheduler_type={schedule!r} brings the rate down by itself, and a horizon would do so "
            f"once more. Use one of {', '.join(WITHOUT_DECAY)} with it, or leave horizon out."
        )
    adapter = _Adapter(trainer, settings, horizon)
    for name in ("create_optimizer", "create_scheduler", "training_step", "log"):
        setattr(trainer, name, getattr(adapter, name))
    return trainer


class _Adapter:
    """What is wrapped around one trainer, and the window of its micro-batches."""

    def __init__(self, trainer: Trainer, settings: dict[str, Any], horizon: Horizon) -> None:
        self._trainer = trainer
        self._settings = settings
        self._horizon = horizon
        self._create_optimizer: Callable[..., Any] = trainer.create_optimizer
        self._create_scheduler: Callable[..., Any] = trainer.create_scheduler
        self._training_step: Callable[..., Tensor] = trainer.training_step
        self._log: Callable[..., None] = trainer.log
        self._window: AcceleratedWindow | None = None
        self._news: News | None = None

    def create_optimizer(self, *args: Any, **kwargs: Any) -> Any:
        self._create_optimizer(*args, **kwargs)
        trainer = self._trainer
        if isinstance(trainer.optimizer, AcceleratedOptimizer):  # train() was called before
            return trainer.optimizer
        if not isinstance(trainer.optimizer, ProbStep):
            model = trainer.model
            trainer.optimizer = ProbStep(trainer.optimizer, model=model, **self._settings)
        self._window = AcceleratedWindow(trainer.accelerator, trainer.optimizer)
        report_clipping(trainer.accelerator, self._window.window)
        return trainer.optimizer

    def create_scheduler(self, num_training_steps: int, *args: Any, **kwargs: Any) -> Any:
        scheduler = self._create_scheduler(num_training_steps, *args, **kwargs)
        if self._horizon is not None:
            set_horizon(self._required_window.window.optimizer, self._horizon, num_training_steps)
        return scheduler

    def training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Tensor:
        window = self._required_window
        if self._news is None:  # a checkpoint has been loaded by now
            self._news = News(window.window.optimizer)
        window.begin()
        kept = copy.copy(inputs)  # compute_loss may take the labels out

        def again() -> Tensor:
            with standing_in(self._trainer.accelerator, backward=ignore):
                return self._training_step(model, copy.copy(kept), *args, **kwargs)

        with window.window.optimizer.forward_pass():
            loss = self._training_step(model, inputs, *args, **kwargs)
        window.window.keep(loss, again)
        return loss

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        if "learning_rate" in logs:
            logs = {**logs, **rates_of(self._required_window.window.optimizer)}
            logs |= {} if self._news is None else self._news.counts()
        self._log(logs, *args, **kwargs)

    @property
    def _required_window(self) -> AcceleratedWindow:
        if self._window is None:
            raise RuntimeError(
                "The trainer has made no optimizer. Call adapt(trainer) before train()."
            )
        return self._window
