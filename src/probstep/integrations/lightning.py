"""Adapt the learning rate of an unchanged LightningModule: one callback.

    trainer = Trainer(callbacks=[LearningRateAdaptation()])
    trainer.fit(model, loader)

Lightning's own closure runs backward and logs, so a probe does not use it: the callback keeps the
micro-batches of the window and runs `training_step` again, without gradients, logs and metrics.

Needs the extra: pip install 'probstep[lightning]'.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ..optimizer import ProbStep
from .borrowed import ignore, standing_in
from .news import News
from .rates import rates_of
from .steps import Horizon, set_horizon
from .window import Window

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.callbacks import LearningRateMonitor
    from lightning.pytorch.utilities.model_helpers import is_overridden
    from torchmetrics import Metric
except ImportError as error:
    raise ImportError(
        "probstep.integrations.lightning needs Lightning: pip install 'probstep[lightning]'."
    ) from error


class LearningRateAdaptation(Callback):  # type: ignore[misc]  # lightning is not followed by mypy
    """Adapt the optimizer of a LightningModule in automatic optimization.

    The optimizer that `configure_optimizers` returns is wrapped in a ProbStep; its schedulers, the
    Trainer's accumulation, clipping, precision and checkpoints work as before. The rates and events go
    to the loggers, and the first rate to the progress bar. A `LearningRateMonitor` beside it shows the
    effective rates, too.

    Args:
        horizon: The `horizon` of ProbStep; True takes `trainer.estimated_stepping_batches`.
        settings: Those of `ProbStep`: `rule` (by default RobustRule), `probe`, `lower_bound`, `noise`.
            A ProbStep that `configure_optimizers` returned itself keeps its own.
    """

    def __init__(self, *, horizon: Horizon = None, **settings: Any) -> None:
        self._settings = settings
        self._horizon = horizon
        self._window: Window
        self._news: News
        self._is_probing = False
        self._borrowed = ExitStack()

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Adapt the optimizer before its state is restored from a checkpoint."""
        _refuse_unusable(trainer, pl_module)
        (optimizer,) = trainer.optimizers
        if not isinstance(optimizer, ProbStep):
            optimizer = ProbStep(optimizer, model=pl_module, **self._settings)
        if self._horizon is not None:
            set_horizon(optimizer, self._horizon, trainer.estimated_stepping_batches)
        trainer.strategy.optimizers = [optimizer]
        self._window = Window(optimizer)
        for callback in trainer.callbacks:
            if isinstance(callback, LearningRateMonitor):
                extract = _adapted(callback._extract_lr, optimizer)
                self._borrowed.enter_context(standing_in(callback, _extract_lr=extract))
        self._borrowed.enter_context(
            standing_in(
                pl_module,
                training_step=self._recording(trainer, pl_module.training_step),
                configure_gradient_clipping=self._telling(trainer, pl_module),
                optimizer_zero_grad=_past(optimizer, pl_module.optimizer_zero_grad),
            )
        )

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take the events of a restored checkpoint for told."""
        del trainer, pl_module
        self._news = News(self._window.optimizer)

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Begin a window with its first micro-batch."""
        del pl_module, batch
        self._window.weight = 1 / trainer.accumulate_grad_batches  # as Lightning's closure does
        if batch_idx % trainer.accumulate_grad_batches == 0:
            self._window.clear()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, *_: Any, **__: Any
    ) -> None:
        """Log the rates, and events at once, also between the steps that are logged."""
        if trainer.barebones:
            return
        shown, *others = rates_of(self._window.optimizer).items()
        pl_module.log(*shown, prog_bar=True, batch_size=1)
        pl_module.log_dict(dict(others), batch_size=1)
        if counts := self._news.counts():
            for logger in trainer.loggers:
                logger.log_metrics(counts, step=trainer.global_step)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Give the module its methods back."""
        del trainer, pl_module, stage
        self._borrowed.close()

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """Give the module its methods back."""
        del trainer, pl_module, exception
        self._borrowed.close()

    def _recording(self, trainer: Trainer, step: Callable[..., Any]) -> Callable[..., Any]:
        """Return a training_step that keeps its micro-batch."""

        @functools.wraps(step)
        def training_step(*args: Any, **kwargs: Any) -> Any:
            if self._is_probing:
                return step(*args, **kwargs)
            with self._window.optimizer.forward_pass():
                output = step(*args, **kwargs)
            loss = _loss_of(output)
            if loss is not None:
                self._window.keep(loss, lambda: self._again(trainer, args, kwargs))
            return output

        return training_step

    def _again(self, trainer: Trainer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        self._is_probing = True
        try:
            with _unheard(trainer.lightning_module):
                # The strategy's, for the precision's context and the distributed wrapper.
                output = trainer.strategy.training_step(*args, **kwargs)
        finally:
            self._is_probing = False
        loss = _loss_of(output)
        if loss is None:
            raise RuntimeError(
                "training_step returned a loss at first and None for the same batch."
            )
        return loss

    def _telling(self, trainer: Trainer, module: LightningModule) -> Callable[..., None]:
        """Return a configure_gradient_clipping that measures its effect and hands over the window."""
        clip = module.configure_gradient_clipping
        is_own = is_overridden("configure_gradient_clipping", module)

        @functools.wraps(clip)
        def configure_gradient_clipping(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            if is_own or trainer.gradient_clip_val:
                before = _norm_of_gradients(optimizer)
                clip(optimizer, *args, **kwargs)
                after = _norm_of_gradients(optimizer)
                self._window.grad_scale = torch.where(before > 0, after / before, 1.0)
            self._window.hand_over()

        return configure_gradient_clipping


def _refuse_unusable(trainer: Trainer, module: LightningModule) -> None:
    if not module.automatic_optimization:
        raise ValueError(
            "LearningRateAdaptation adapts automatic optimization, and this module steps by itself. "
            "Return ProbStep(optimizer) from configure_optimizers and call its step(closure)."
        )
    if trainer.strategy.handles_gradient_accumulation:
        raise ValueError(
            f"{type(trainer.strategy).__name__} steps inside its own engine, where no optimizer can be "
            "adapted. Use a strategy that leaves the step to torch: single device, DDP or FSDP2."
        )


def _adapted(
    extract: Callable[..., dict[str, Any]], optimizer: ProbStep
) -> Callable[..., dict[str, Any]]:
    """Return a LearningRateMonitor's way to read a group, so that it sees the effective rate."""

    @functools.wraps(extract)
    def extract_lr(param_group: dict[str, Any], name: str) -> dict[str, Any]:
        rates = zip(optimizer.param_groups, optimizer.effective_lr, strict=True)
        rate = next(rate for group, rate in rates if group is param_group)
        return extract({**param_group, "lr": rate}, name)

    return extract_lr


def _past(optimizer: ProbStep, clear: Callable[..., None]) -> Callable[..., None]:
    """Return an optimizer_zero_grad that goes past ProbStep to the optimizer inside.

    Lightning clears the gradients between a forward pass and its backward; ProbStep would take that as
    the sign that the pass has come to nothing.
    """

    @functools.wraps(clear)
    def optimizer_zero_grad(epoch: int, batch_idx: int, _: Any) -> None:
        clear(epoch, batch_idx, optimizer.base)

    return optimizer_zero_grad


def _loss_of(output: Any) -> Tensor | None:
    loss: Tensor | None = output["loss"] if isinstance(output, Mapping) else output
    return loss


def _norm_of_gradients(optimizer: torch.optim.Optimizer) -> Tensor:
    params = (p for group in optimizer.param_groups for p in group["params"])
    return nn.utils.get_total_norm([p.grad for p in params if p.grad is not None])


@contextmanager
def _unheard(module: LightningModule) -> Iterator[None]:
    """Log nothing and leave every metric as it is."""
    metrics = [part for part in module.modules() if isinstance(part, Metric)]
    kept = [_state_of(metric) for metric in metrics]
    try:
        with standing_in(module, log=ignore, log_dict=ignore):
            yield
    finally:
        for metric, state in zip(metrics, kept, strict=True):
            vars(metric).update(state)


def _state_of(metric: Metric) -> dict[str, Any]:
    names = [*metric._defaults, "_update_count", "_computed", "_forward_cache"]
    return {name: _copy_of(getattr(metric, name)) for name in names}


def _copy_of(value: Any) -> Any:
    if isinstance(value, list):
        return list(value)
    return value.clone() if isinstance(value, Tensor) else value
