"""An existing Trainer, adapted in one line, does what a hand-written loop does."""

import functools

import pytest
import torch
from torch.optim.swa_utils import AveragedModel

import probstep
from probstep import Every, PaperRule, ProbStep, RobustRule, WatchRule

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from transformers import (
    BertConfig,
    BertForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from probstep.integrations.transformers import adapt

FROZEN = PaperRule(up=1, down=1)
STEPS, SIZE = 8, 4
for_every_rule = pytest.mark.parametrize("rule", [PaperRule(), None], ids=["paper", "default"])


def language_model(dropout=0.1):
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
            num_attention_heads=2, max_position_embeddings=16, attention_dropout=dropout,
            pad_token_id=0, bos_token_id=1, eos_token_id=2,
        )
    )  # fmt: skip


def classifier():
    torch.manual_seed(0)
    return BertForSequenceClassification(
        BertConfig(
            vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
            num_attention_heads=2, max_position_embeddings=16, num_labels=3, pad_token_id=0,
        )
    )  # fmt: skip


def sentences():
    """Sequences of different lengths, so that micro-batches hold different numbers of tokens."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(3, 32, (STEPS * SIZE * 2, 8), generator=generator)
    lengths = torch.randint(3, 9, (len(tokens),), generator=generator)
    is_padding = torch.arange(8) >= lengths[:, None]
    return tokens.masked_fill(is_padding, 0), is_padding


def for_language_model():
    tokens, is_padding = sentences()
    labels = tokens.masked_fill(is_padding, -100)
    return [
        {"input_ids": t, "labels": y, "attention_mask": (~p).long()}
        for t, y, p in zip(tokens, labels, is_padding, strict=True)
    ]


def for_classifier():
    tokens, is_padding = sentences()
    return [
        {"input_ids": t, "labels": t[0] % 3, "attention_mask": (~p).long()}
        for t, p in zip(tokens, is_padding, strict=True)
    ]


MODELS = {
    "causal": (language_model, for_language_model),
    "without dropout": (functools.partial(language_model, dropout=0.0), for_language_model),
    "classifier": (classifier, for_classifier),
}


class InOrder(Trainer):
    """A Trainer of somebody's own: it does not shuffle."""

    def _get_train_sampler(self, *_):
        return torch.utils.data.SequentialSampler(self.train_dataset)


def make_trainer(folder, model="causal", optimizer=None, **arguments):
    make_model, make_data = MODELS[model]
    settings = {
        "max_steps": STEPS,
        "per_device_train_batch_size": SIZE,
        "learning_rate": 1e-4,
        "lr_scheduler_type": "constant",
        "max_grad_norm": 0.0,
        "use_cpu": True,
        "dataloader_pin_memory": False,
        "seed": 3,
        "report_to": [],
        "logging_steps": 1,
        "disable_tqdm": True,
        "save_strategy": "no",
    }
    args = TrainingArguments(output_dir=str(folder), **{**settings, **arguments})
    return InOrder(
        model=make_model(),
        args=args,
        train_dataset=make_data(),
        optimizer_cls_and_kwargs=optimizer,
    )


def train(trainer, **arguments):
    torch.manual_seed(3)  # the Trainer seeds when it is made, not when it trains
    trainer.train(**arguments)
    return trainer


def optimizer_of(trainer):
    opt = trainer.optimizer.optimizer
    assert isinstance(opt, ProbStep)
    return opt


def weights_of(trainer):
    return torch.cat([p.detach().flatten() for p in trainer.model.parameters()])


def test_a_probe_covers_the_window_and_leaves_no_trace(tmp_path):
    arguments = {"gradient_accumulation_steps": 2, "max_grad_norm": 0.5}
    bare, adapted = (make_trainer(tmp_path, "classifier", **arguments) for _ in range(2))
    train(bare)
    train(adapt(adapted, rule=FROZEN))
    assert torch.equal(weights_of(adapted), weights_of(bare))
    assert (
        optimizer_of(adapted).metrics()["probe_forwards"] == STEPS + 1
    )  # the first proves the loss
    assert [row.get("loss") for row in adapted.state.log_history] == [
        row.get("loss") for row in bare.state.log_history
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"gradient_accumulation_steps": 2},
        {"max_grad_norm": 0.05},
        {"gradient_accumulation_steps": 2, "label_smoothing_factor": 0.1, "max_grad_norm": 0.05},
        {"optim": "sgd", "learning_rate": 1e-3},
        {"gradient_checkpointing": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("model", ["causal", "classifier"])
def test_a_step_too_small_to_bend_shows_the_ratio_two(tmp_path, model, arguments):
    """A wrong weight of a micro-batch or a lost clip factor would show another ratio."""
    arguments = {"learning_rate": 1e-5, "max_steps": 3, **arguments}
    trainer = adapt(make_trainer(tmp_path, model, **arguments), rule=FROZEN)
    trainer.model.double()
    trainer.train()
    assert optimizer_of(trainer).metrics()["probes/unpaired"] == 0
    assert optimizer_of(trainer).last_probe.ratio == pytest.approx(2, abs=0.02)


def test_the_default_is_the_robust_rule_and_every_probe_is_paired(tmp_path):
    trainer = adapt(make_trainer(tmp_path, gradient_accumulation_steps=2))
    trainer.train()
    opt = optimizer_of(trainer)
    assert opt.rule == RobustRule()
    assert opt.metrics()["probes/search"] == 1
    assert opt.metrics()["probes/unpaired"] == 0


@for_every_rule
def test_it_trains_as_a_hand_written_loop(tmp_path, rule):
    trainer = adapt(make_trainer(tmp_path, "without dropout", max_grad_norm=0.3), rule=rule)
    trainer.train()
    model = language_model(dropout=0.0)
    names = trainer.get_decay_parameter_names(model)
    groups = [
        {"params": [p for n, p in model.named_parameters() if (n in names) == is_decayed]}
        for is_decayed in (True, False)
    ]
    opt = ProbStep(torch.optim.AdamW(groups, lr=1e-4, weight_decay=0.0), rule, model=model)
    rows = for_language_model()
    for start in range(0, STEPS * SIZE, SIZE):
        batch = {k: torch.stack([r[k] for r in rows[start : start + SIZE]]) for k in rows[0]}
        opt.zero_grad()
        loss = model(**batch).loss
        loss.backward()
        opt.clip_grad_norm_(0.3)
        opt.step(loss=loss, reevaluate=lambda batch=batch: model(**batch).loss)
    assert optimizer_of(trainer).scale == pytest.approx(opt.scale, rel=1e-4)
    assert opt.scale > 1
    expected = torch.cat([p.detach().flatten() for p in model.parameters()])
    torch.testing.assert_close(weights_of(trainer), expected)


@for_every_rule
@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_resuming_from_a_checkpoint_is_bit_for_bit(tmp_path, schedule, rule):
    arguments = {
        "lr_scheduler_type": schedule, "warmup_steps": 2, "gradient_accumulation_steps": 2,
        "save_strategy": "steps", "save_steps": 4,
    }  # fmt: skip
    whole = adapt(make_trainer(tmp_path, "classifier", **arguments), rule=rule)
    train(whole)
    resumed = adapt(make_trainer(tmp_path, "classifier", **arguments), rule=rule)
    train(resumed, resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    assert optimizer_of(resumed).metrics() == optimizer_of(whole).metrics()
    assert optimizer_of(whole).scale > 1
    assert torch.equal(weights_of(resumed), weights_of(whole))


def test_the_effective_rate_is_logged_beside_the_scheduled_one(tmp_path):
    trainer = adapt(make_trainer(tmp_path, lr_scheduler_type="cosine", warmup_steps=2))
    trainer.train()
    rows = [row for row in trainer.state.log_history if "learning_rate" in row]
    assert len(rows) == STEPS
    assert rows[-1]["lr_scale"] == optimizer_of(trainer).scale
    assert all(row["effective_lr/0"] >= 0 for row in rows)


def test_events_are_logged_with_the_steps_that_they_belong_to(tmp_path):
    trainer = adapt(make_trainer(tmp_path))
    trainer.train()
    rows = [row for row in trainer.state.log_history if "event/search" in row]
    assert [(row["step"], row["event/search"]) for row in rows] == [(1, 1)]


def test_probing_less_often_costs_less_often(tmp_path):
    trainer = adapt(make_trainer(tmp_path), rule=PaperRule(), probe=Every(4))
    trainer.train()
    assert optimizer_of(trainer).metrics()["probe_forwards"] == STEPS // 4 + 1  # and the proof


def test_an_optimizer_of_ones_own_and_a_second_train_are_adapted(tmp_path):
    trainer = make_trainer(tmp_path)
    trainer.optimizer = torch.optim.SGD(trainer.model.parameters(), lr=1e-3)
    adapt(trainer).train()
    first = optimizer_of(trainer)
    trainer.train()
    assert optimizer_of(trainer) is first
    assert first.metrics()["steps"] == 2 * STEPS


def test_it_lowers_the_loss_from_a_rate_far_too_small(tmp_path):
    arguments = {"max_steps": 40, "learning_rate": 1e-6, "logging_steps": 100}
    bare, adapted = (make_trainer(tmp_path, **arguments) for _ in range(2))
    before = adapted.evaluate(for_language_model())["eval_loss"]
    train(bare)
    train(adapt(adapted))
    gains = [before - t.evaluate(for_language_model())["eval_loss"] for t in (bare, adapted)]
    assert gains[1] > 10 * gains[0] > 0


def test_a_trainer_that_is_only_watched_trains_as_without_it(tmp_path):
    bare, watched = (make_trainer(tmp_path, "classifier") for _ in range(2))
    train(bare)
    train(adapt(watched, rule=WatchRule()))
    assert torch.equal(weights_of(watched), weights_of(bare))
    assert optimizer_of(watched).gauge.probes > 0


def test_a_class_of_ours_is_built_by_the_trainer_and_adapted(tmp_path):
    adapted = make_trainer(tmp_path)
    train(adapt(adapted))
    # a Trainer's own AdamW has the rate and the decay of its arguments
    kwargs = {"lr": 1e-4, "betas": (0.9, 0.999), "eps": 1e-8, "fused": True}
    built = make_trainer(tmp_path, optimizer=(probstep.AdamW, kwargs))
    train(adapt(built))
    assert type(optimizer_of(built)) is probstep.AdamW
    assert optimizer_of(built).metrics() == optimizer_of(adapted).metrics()
    assert torch.equal(weights_of(built), weights_of(adapted))


def test_a_class_without_adapt_steps_as_the_optimizer_inside_and_says_so(tmp_path):
    trainer = make_trainer(tmp_path, optimizer=(probstep.AdamW, {"lr": 1e-4}))
    with pytest.warns(RuntimeWarning, match="no way to evaluate the loss again"):
        trainer.train()
    assert optimizer_of(trainer).scale == 1


@pytest.mark.parametrize("schedule", ["constant", "constant_with_warmup"])
def test_the_trainer_hands_over_its_horizon(tmp_path, schedule):
    arguments = {"max_steps": -1, "num_train_epochs": 1, "lr_scheduler_type": schedule}
    trainer = adapt(make_trainer(tmp_path, **arguments), horizon=True)
    trainer.train()
    opt = optimizer_of(trainer)
    assert opt.horizon == opt.metrics()["steps"] == trainer.state.max_steps == 2 * STEPS
    trainer.train()
    assert opt.horizon == opt.metrics()["steps"] == 4 * STEPS


def test_a_number_of_steps_is_a_horizon_too(tmp_path):
    trainer = adapt(make_trainer(tmp_path), horizon=3 * STEPS)
    trainer.train()
    assert optimizer_of(trainer).horizon == 3 * STEPS


def test_a_horizon_under_a_schedule_that_decays_is_refused(tmp_path):
    with pytest.raises(ValueError, match="'linear' brings the rate down by itself"):
        adapt(make_trainer(tmp_path, lr_scheduler_type="linear"), horizon=True)


def test_an_average_is_a_callback_and_changes_nothing(tmp_path):
    trainer, alone = (adapt(make_trainer(tmp_path)) for _ in range(2))
    average = AveragedModel(trainer.model, multi_avg_fn=probstep.polynomial_average(8))

    class Averaging(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            average.update_parameters(trainer.model)

    trainer.add_callback(Averaging())
    train(trainer)
    train(alone)
    assert average.n_averaged == STEPS
    assert torch.equal(weights_of(trainer), weights_of(alone))
    assert not torch.equal(next(average.parameters()), next(trainer.model.parameters()))


def test_a_list_of_optimizers_is_adapted_as_one(tmp_path):
    model = language_model()
    matrices = [p for p in model.model.layers.parameters() if p.ndim == 2]
    inner = set(map(id, matrices))
    others = [p for p in model.parameters() if id(p) not in inner]
    opt = ProbStep([torch.optim.Muon(matrices, lr=1.0), torch.optim.AdamW(others, lr=1e-8)])
    arguments = TrainingArguments(
        output_dir=str(tmp_path), max_steps=STEPS, per_device_train_batch_size=SIZE,
        lr_scheduler_type="constant", use_cpu=True, dataloader_pin_memory=False, report_to=[],
        save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    trainer = Trainer(model, arguments, train_dataset=for_language_model(), optimizers=(opt, None))
    adapt(trainer).train()
    assert opt.metrics()["probes/search"] == 1
    assert all(1e-5 < rate < 1 for rate in opt.effective_lr)


class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x, labels=None):
        outputs = self.layer(x)[:, 0]
        return {"loss": (outputs - labels).square().mean(), "logits": outputs}


@pytest.mark.filterwarnings("ignore:Using `torch.compile")
def test_a_model_that_the_trainer_compiles_stays_compiled(tmp_path, monkeypatch):
    for name in ("BACKEND", "MODE"):  # the arguments write there, for all that come later
        monkeypatch.setenv(f"ACCELERATE_DYNAMO_{name}", "")
    torch._dynamo.reset()
    torch.manual_seed(0)
    monkeypatch.setitem(MODELS, "small", (Small, lambda: list(map(row, torch.randn(64, 4)))))
    arguments = {"torch_compile": True, "torch_compile_backend": "eager"}
    trainer = make_trainer(tmp_path, model="small", **arguments)
    torch._dynamo.utils.counters.clear()
    adapt(trainer, rule=PaperRule()).train()
    assert optimizer_of(trainer).metrics()["probes/up"] > 1
    # One for training, one for probes: they take no gradients.
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 2


def row(x):
    return {"x": x, "labels": x.sum()}
