"""An unchanged LightningModule, adapted by one callback, does what a hand-written loop does."""

import csv
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import probstep
from probstep import Every, PaperRule, ProbStep, RobustRule, WatchRule

pytest.importorskip("lightning")

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import LearningRateMonitor, WeightAveraging
from lightning.pytorch.loggers import CSVLogger
from torchmetrics import MeanMetric

from probstep.integrations.lightning import LearningRateAdaptation

FROZEN = PaperRule(up=1, down=1)
for_every_rule = pytest.mark.parametrize("rule", [PaperRule(), None], ids=["paper", "default"])
BATCHES = 7  # odd, so that the last window of two is cut short
QUIET = {
    "accelerator": "cpu",
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}
pytestmark = [
    pytest.mark.filterwarnings("ignore:The 'train_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:The number of training batches"),
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.`:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty"),
]


class Module(LightningModule):
    def __init__(self, optimizer=torch.optim.SGD, lr=1e-3, returns="tensor", schedule=False):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(
            nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Dropout(0.2), nn.Linear(16, 3)
        )
        self.mean_loss = MeanMetric()
        self.optimizer, self.lr, self.returns, self.schedule = optimizer, lr, returns, schedule
        self.forwards = 0

    def training_step(self, batch, batch_idx):
        x, y = batch
        self.forwards += 1
        loss = nn.functional.cross_entropy(self.net(x), y)
        self.log("loss", self.mean_loss(loss.detach()))
        return {"tensor": loss, "dict": {"loss": loss, "more": 1}, "none": None}[self.returns]

    def configure_optimizers(self):
        opt = self.optimizer(self.net.parameters(), lr=self.lr)
        if not self.schedule:
            return opt
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=20)
        return {"optimizer": opt, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class SameNoise(Callback):
    """Seed every step, so that other loops and resumed runs draw the same dropout masks."""

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if batch_idx % trainer.accumulate_grad_batches == 0:
            torch.manual_seed(trainer.global_step)


def batches(dtype=torch.float32):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(8 * BATCHES, 6, generator=generator).to(dtype)
    return TensorDataset(x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long())


def fit(module, *, epochs=3, adaptation=None, ckpt_path=None, dtype=torch.float32, **settings):
    adaptation = adaptation or LearningRateAdaptation()
    callbacks = [SameNoise(), adaptation]
    trainer = Trainer(max_epochs=epochs, callbacks=callbacks, **{**QUIET, **settings})
    trainer.fit(module, DataLoader(batches(dtype), batch_size=8), ckpt_path=ckpt_path)
    return trainer


def adapted_by(rule):
    return LearningRateAdaptation(rule=rule)


def by_hand(module, rule=None, *, epochs=3, accumulate=1, clip=None, schedule=None):
    """The same training as a plain loop over ProbStep."""
    opt = ProbStep(module.configure_optimizers(), rule, model=module.net)
    scheduler = None if schedule is None else schedule(opt)
    for _ in range(epochs):
        parts = list(DataLoader(batches(), batch_size=8))
        for start in range(0, BATCHES, accumulate):
            window = parts[start : start + accumulate]

            def loss_of(window=window):
                losses = [nn.functional.cross_entropy(module.net(x), y) for x, y in window]
                return sum(losses) / accumulate

            torch.manual_seed(opt.metrics()["steps"])
            opt.zero_grad()
            loss = loss_of()
            loss.backward()
            if clip is not None:
                opt.clip_grad_norm_(clip)
            opt.step(loss=loss, reevaluate=loss_of)
            if scheduler is not None:
                scheduler.step()
    return opt


def assert_same(module, opt, other_module, other_opt, **tolerances):
    if not tolerances:
        assert opt.scale == other_opt.scale
        assert opt.metrics().keys() == other_opt.metrics().keys()
    torch.testing.assert_close(
        list(module.net.state_dict().values()),
        list(other_module.net.state_dict().values()),
        **(tolerances or {"rtol": 0, "atol": 0}),
    )
    assert opt.metrics()["probes/up"] == other_opt.metrics()["probes/up"]


@for_every_rule
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_it_trains_bit_for_bit_as_a_hand_written_loop(optimizer, rule):
    module, same = Module(optimizer), Module(optimizer)
    opt = fit(module, adaptation=adapted_by(rule)).optimizers[0]
    assert isinstance(opt, ProbStep)
    assert opt.scale > 1
    assert_same(module, opt, same, by_hand(same, rule))


def test_the_default_is_the_robust_rule_and_every_probe_is_paired():
    opt = fit(Module(), accumulate_grad_batches=2).optimizers[0]
    assert opt.rule == RobustRule()
    assert opt.metrics()["probes/search"] == 1
    assert opt.metrics()["probes/unpaired"] == 0


def test_accumulated_micro_batches_are_probed_together():
    module, same = Module(), Module()
    settings = {"adaptation": adapted_by(PaperRule()), "accumulate_grad_batches": 2}
    opt = fit(module, **settings).optimizers[0]
    assert opt.metrics()["steps"] == 3 * 4
    expected = by_hand(same, PaperRule(), accumulate=2)
    assert_same(module, opt, same, expected, rtol=1e-5, atol=1e-7)


def test_the_factor_of_clipping_reaches_the_slope():
    module, same = Module(), Module()
    adaptation = adapted_by(PaperRule())
    opt = fit(module, adaptation=adaptation, gradient_clip_val=0.1).optimizers[0]
    by_loop = by_hand(same, PaperRule(), clip=0.1)
    assert_same(module, opt, same, by_loop, rtol=1e-5, atol=1e-7)
    assert opt.last_probe.slope == pytest.approx(by_loop.last_probe.slope, rel=1e-4)


@for_every_rule
def test_a_schedule_composes(rule):
    module, same = Module(schedule=True), Module()
    opt = fit(module, adaptation=adapted_by(rule)).optimizers[0]
    expected = by_hand(
        same, rule, schedule=lambda opt: torch.optim.lr_scheduler.CosineAnnealingLR(opt, 20)
    )
    assert opt.param_groups[0]["lr"] < 1e-3
    assert_same(module, opt, same, expected)


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "64-true"])
def test_every_precision_is_probed_as_it_is_trained(precision):
    module = Module(lr=1e-4)
    opt = fit(module, adaptation=adapted_by(PaperRule()), precision=precision).optimizers[0]
    probe = opt.last_probe
    assert opt.metrics()["probe_forwards"] == 3 * BATCHES + 1  # the first proves the loss
    assert opt.metrics()["probes/unpaired"] == 0
    if precision != "bf16-mixed":  # whose loss is too coarse for a step so small
        assert probe.ratio == pytest.approx(2, abs=0.2)


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "64-true"])
def test_every_precision_is_searched_alike(precision):
    found = [
        fit(Module(lr=1e-9), epochs=1, precision=used).optimizers[0]
        for used in ("32-true", precision)
    ]
    assert found[1].metrics()["probes/unpaired"] == 0
    assert 1 / 3 < found[1].scale / found[0].scale < 3


@for_every_rule
@pytest.mark.parametrize("accumulate", [1, 2])
def test_resuming_from_lightnings_checkpoint_is_bit_for_bit(tmp_path, accumulate, rule):
    def fitted(module, epochs, ckpt_path=None):
        settings = {"accumulate_grad_batches": accumulate, "ckpt_path": ckpt_path}
        return fit(module, epochs=epochs, adaptation=adapted_by(rule), **settings)

    whole, first, second = (Module(torch.optim.Adam, schedule=True) for _ in range(3))
    expected = fitted(whole, 4)
    fitted(first, 2).save_checkpoint(tmp_path / "half.ckpt")
    resumed = fitted(second, 4, tmp_path / "half.ckpt")
    assert resumed.optimizers[0].metrics() == expected.optimizers[0].metrics()
    assert_same(second, resumed.optimizers[0], whole, expected.optimizers[0])


def test_a_checkpoint_loads_without_the_callback(tmp_path):
    fit(Module(), epochs=1).save_checkpoint(tmp_path / "one.ckpt")
    trainer = Trainer(max_epochs=2, **QUIET)
    trainer.fit(Module(), DataLoader(batches(), batch_size=8), ckpt_path=tmp_path / "one.ckpt")
    assert type(trainer.optimizers[0]) is torch.optim.SGD


def test_a_probe_is_one_forward_that_neither_logs_nor_counts_in_metrics():
    adapted, bare = Module(), Module()
    trainer = fit(adapted, epochs=1, adaptation=LearningRateAdaptation(rule=FROZEN))
    expected = fit(bare, epochs=1, adaptation=Callback())
    assert adapted.forwards == 2 * BATCHES + 1  # the first proves the loss
    assert bare.forwards == BATCHES
    assert trainer.callback_metrics["loss"] == expected.callback_metrics["loss"]
    for ours, theirs in zip(adapted.net.parameters(), bare.net.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_probing_less_often_costs_less_often():
    module = Module()
    adaptation = LearningRateAdaptation(rule=PaperRule(), probe=Every(3))
    fit(module, epochs=1, adaptation=adaptation)
    assert module.forwards == BATCHES + 3 + 1  # the first proves the loss


def test_the_effective_rate_is_logged(tmp_path):
    logger = CSVLogger(tmp_path)
    trainer = fit(Module(), epochs=1, logger=logger, log_every_n_steps=1)
    assert "effective_lr" in trainer.progress_bar_metrics
    with (Path(logger.log_dir) / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    logged = [row["effective_lr"] for row in rows if row["effective_lr"]]
    assert len(logged) == BATCHES
    assert float(logged[-1]) == pytest.approx(trainer.optimizers[0].effective_lr[0])


def test_events_are_logged_once_also_between_the_steps_that_are_logged(tmp_path):
    logger = CSVLogger(tmp_path)
    fit(Module(), epochs=1, logger=logger, log_every_n_steps=100)
    with (Path(logger.log_dir) / "metrics.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["event/search"]]
    assert [(row["step"], float(row["event/search"])) for row in rows] == [("1", 1.0)]


class Watcher(Callback):
    """Notes the effective rate with which a step begins."""

    def __init__(self):
        self.rates = []

    def on_train_batch_start(self, trainer, *_):
        self.rates.append(trainer.optimizers[0].effective_lr[0])


@pytest.mark.parametrize(("schedule", "horizon"), [(False, None), (True, None), (False, True)])
def test_a_learning_rate_monitor_shows_the_effective_rate(tmp_path, schedule, horizon):
    monitor, watcher = LearningRateMonitor(logging_interval="step"), Watcher()
    callbacks = [monitor, LearningRateAdaptation(horizon=horizon), watcher]
    settings = {**QUIET, "logger": CSVLogger(tmp_path), "log_every_n_steps": 1}
    trainer = Trainer(max_epochs=1, callbacks=callbacks, **settings)
    trainer.fit(Module(schedule=schedule), DataLoader(batches(), batch_size=8))
    shown, *again = monitor.lrs.values()  # of the scheduler's optimizer, and of the ProbStep
    assert all(rates == shown for rates in again)
    assert shown == pytest.approx(watcher.rates)
    assert shown[-1] != pytest.approx(1e-3)
    assert "_extract_lr" not in vars(monitor)


@pytest.mark.parametrize("returns", ["dict", "none"])
@pytest.mark.filterwarnings("ignore:`training_step` returned `None`")
def test_whatever_training_step_may_return_is_understood(returns):
    opt = fit(Module(returns=returns), epochs=1).optimizers[0]
    assert (opt.scale > 1) == (returns == "dict")


class Skipping(Module):
    """Skips every third batch."""

    def training_step(self, batch, batch_idx):
        return None if batch_idx % 3 == 1 else super().training_step(batch, batch_idx)


@pytest.mark.filterwarnings("ignore:`training_step` returned `None`")
def test_a_skipped_batch_is_not_probed():
    module = Skipping()
    opt = fit(module, epochs=1, adaptation=adapted_by(PaperRule())).optimizers[0]
    assert opt.metrics()["steps"] == BATCHES
    assert opt.metrics()["probes/up"] == BATCHES - 2
    assert opt.metrics()["probe_forwards"] == BATCHES - 2 + 1  # the first proves the loss


def test_a_probstep_of_ones_own_keeps_its_settings():
    def own(params, lr):
        return ProbStep(torch.optim.SGD(params, lr=lr), rule=FROZEN)

    opt = fit(Module(own), epochs=1).optimizers[0]
    assert opt.rule == FROZEN
    assert opt.metrics()["probe_forwards"] == BATCHES + 1  # the first proves the loss


def test_the_module_gets_its_methods_back():
    module = Module()
    fit(module, epochs=1)
    assert not {"training_step", "configure_gradient_clipping", "log"} & vars(module).keys()


def test_manual_optimization_is_refused_with_advice():
    module = Module()
    module.automatic_optimization = False
    with pytest.raises(ValueError, match="configure_optimizers"):
        fit(module, epochs=1)
    assert "training_step" not in vars(module)


def test_a_module_that_is_only_watched_trains_as_without_it_and_logs_the_factor():
    bare, watched = Module(schedule=True), Module(schedule=True)
    fit(bare, adaptation=SameNoise(), accumulate_grad_batches=2)
    trainer = fit(watched, adaptation=adapted_by(WatchRule()), accumulate_grad_batches=2)
    for ours, theirs in zip(watched.parameters(), bare.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert trainer.optimizers[0].gauge.high < 1
    assert trainer.logged_metrics["rate_factor"] < 1


def test_the_trainer_hands_over_its_horizon():
    trainer = fit(Module(), adaptation=LearningRateAdaptation(horizon=True), epochs=2)
    (opt,) = trainer.optimizers
    assert opt.horizon == opt.metrics()["steps"] == 2 * BATCHES


def test_a_horizon_that_the_trainer_does_not_know_is_refused():
    with pytest.raises(ValueError, match="which does not know it"):
        fit(Module(), adaptation=LearningRateAdaptation(horizon=True), epochs=-1)


def test_a_class_of_ours_is_adapted_as_the_optimizer_inside_would_be():
    by_class = fit(Module(optimizer=probstep.AdamW))
    by_callback = fit(Module(optimizer=torch.optim.AdamW))
    assert type(by_class.optimizers[0]) is probstep.AdamW
    assert by_class.optimizers[0].metrics() == by_callback.optimizers[0].metrics()


def test_lightnings_weight_averaging_takes_our_average_and_leaves_the_training_alone():
    average = WeightAveraging(multi_avg_fn=probstep.polynomial_average(8))
    callbacks = [SameNoise(), LearningRateAdaptation(), average]
    trainer, module, last = Trainer(max_epochs=2, callbacks=callbacks, **QUIET), Module(), Module()
    trainer.fit(module, DataLoader(batches(), batch_size=8))
    alone = fit(last, epochs=2)
    assert average._average_model.n_averaged == 2 * BATCHES
    assert trainer.optimizers[0].metrics() == alone.optimizers[0].metrics()
    assert not torch.equal(module.net[0].weight, last.net[0].weight)


def test_a_list_of_optimizers_is_adapted_as_one():
    class Two(Module):
        def configure_optimizers(self):
            matrices = [p for p in self.net.parameters() if p.ndim == 2]
            others = [p for p in self.net.parameters() if p.ndim != 2]
            bases = [torch.optim.Muon(matrices, lr=1.0), torch.optim.AdamW(others, lr=1e-8)]
            return ProbStep(bases)

    module = Two()
    trainer = Trainer(max_epochs=2, callbacks=[LearningRateAdaptation()], **QUIET)
    trainer.fit(module, DataLoader(batches(), batch_size=8))
    rates = trainer.optimizers[0].effective_lr
    assert 1e-5 < rates["Muon"] < 1
    assert 1e-5 < rates["AdamW"] < 1
    assert trainer.callback_metrics["effective_lr/AdamW"].item() == pytest.approx(rates["AdamW"])
