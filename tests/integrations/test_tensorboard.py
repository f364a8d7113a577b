"""What an optimizer adapts reaches TensorBoard's files."""

import pytest
import torch
from torch import nn

from probstep import PaperRule, ProbStep

pytest.importorskip("tensorboard")

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

from probstep.integrations.tensorboard import record


def steps(opt, model, count):
    x = torch.ones(4, 2)
    for _ in range(count):
        opt.step(lambda: model(x).square().mean())


def test_the_metrics_are_written_every_so_often_until_removed(tmp_path):
    model = nn.Linear(2, 1)
    opt = ProbStep(torch.optim.SGD(model.parameters(), lr=1e-3), PaperRule())
    with SummaryWriter(str(tmp_path)) as writer:
        handle = record(opt, writer, every=2)
        steps(opt, model, 5)
        handle.remove()
        steps(opt, model, 5)
    events = EventAccumulator(str(tmp_path)).Reload()
    rates = events.Scalars("probstep/effective_lr")
    assert [event.step for event in rates] == [2, 4]
    assert rates[0].value == pytest.approx(1e-3 * 1.2**2)
    assert "probstep/ratio" in events.Tags()["scalars"]


def test_events_are_texts_at_their_steps_each_once(tmp_path):
    model = nn.Linear(2, 1)
    opt = ProbStep(torch.optim.SGD(model.parameters(), lr=1e-6))
    with SummaryWriter(str(tmp_path)) as writer:
        record(opt, writer, every=100)
        steps(opt, model, 3)
        opt.param_groups[0]["lr"] *= 1e4  # what was found no longer holds
        steps(opt, model, 2)
    events = EventAccumulator(str(tmp_path)).Reload()
    texts = events.Tensors("probstep/events/text_summary")
    assert [text.step for text in texts] == [1, 4, 4]
    said = [text.tensor_proto.string_val[0].decode() for text in texts]
    assert said[0].startswith("search at step 1: scale ")
    assert said[1] == "restarted at step 4"
    assert said[2].startswith("searched again at step 4: scale ")


def test_events_before_the_recording_are_not_written(tmp_path):
    model = nn.Linear(2, 1)
    opt = ProbStep(torch.optim.SGD(model.parameters(), lr=1e-6))
    steps(opt, model, 1)
    with SummaryWriter(str(tmp_path)) as writer:
        record(opt, writer)
        steps(opt, model, 1)
    assert EventAccumulator(str(tmp_path)).Reload().Tags()["tensors"] == []
