"""Shortcuts in the networks equal what DeepOBS does, and the character model carries its state."""

from functools import partial
from itertools import islice, pairwise

import torch
from torch import nn

from probstep import PaperRule, ProbStep
from probstep.bench.problems import PROBLEMS
from probstep.bench.problems.nets.char_rnn import CharRNN, carry_state
from probstep.bench.problems.nets.layers import halving_conv, halving_pool
from probstep.bench.problems.nets.residual import WideBlock
from probstep.bench.problems.nets.vae import VariationalAutoencoder

from ..standard_files import write_text


def test_pooling_equals_padding_with_zeros_after_a_relu():
    x = torch.randn(4, 3, 12, 12, requires_grad=True)
    padded = nn.MaxPool2d(3, 2)(nn.ZeroPad2d((0, 1, 0, 1))(x.relu()))
    assert torch.equal(halving_pool()(x.relu()), padded)
    ours, theirs = (
        torch.autograd.grad(y.square().sum(), x)[0] for y in (halving_pool()(x.relu()), padded)
    )
    assert torch.equal(ours, theirs)


def test_halving_convolutions_pad_at_the_right_and_at_the_bottom():
    conv = halving_conv(1, 1, bias=False)
    nn.init.ones_(conv[1].weight)
    image = torch.zeros(1, 1, 4, 4)
    image[0, 0, 0, 0] = 1.0
    assert conv(image).flatten().tolist() == [1, 0, 0, 0]  # symmetric padding would see it too
    assert conv(torch.ones(1, 1, 4, 4)).flatten().tolist() == [9, 6, 6, 4]


def test_the_shortcut_of_a_widening_block_follows_norm_and_relu():
    wide, same = WideBlock(2, 3, 1, 0.9), WideBlock(3, 3, 1, 0.9)
    for block in (wide, same):
        nn.init.zeros_(block.conv2.weight)
    x = torch.randn(4, 2, 6, 6)
    passed = wide(x)
    torch.testing.assert_close(passed, wide.shortcut(wide.norm1(x).relu()))
    assert torch.equal(same(passed), passed)


def test_the_variational_autoencoder_draws_when_evaluated_too():
    model = VariationalAutoencoder().eval()
    images = torch.rand(2, 1, 28, 28)
    assert not torch.equal(model(images)[0], model(images)[0])
    assert model(images)[0].shape == (2, 784)


def characters(batch=3, time=10):
    return torch.randint(83, (batch, time), generator=torch.Generator().manual_seed(0))


def test_gates_start_open_for_the_past_and_their_second_bias_is_not_trained():
    model = CharRNN()
    for layer in (0, 1):
        bias = getattr(model.lstm, f"bias_ih_l{layer}").view(4, 128)
        assert bias.sum(dim=1).tolist() == [0, 128, 0, 0]
        second = getattr(model.lstm, f"bias_hh_l{layer}")
        assert (second == 0).all()
        assert not second.requires_grad


def test_a_carried_state_makes_two_batches_one_long_sequence():
    model = CharRNN().eval()
    text = characters(time=20)
    halves = [(text[:, :10], text[:, :10]), (text[:, 10:], text[:, 10:])]
    parts = [model(inputs) for inputs, _ in carry_state(model, iter(halves), 3)]
    torch.testing.assert_close(torch.cat(parts, dim=1), model(text))


def test_a_batch_can_be_evaluated_again_from_the_same_state():
    model = CharRNN().eval()
    batches = carry_state(model, iter([(characters(), None), (characters(), None)]), 3)
    first, second = (model(inputs) for inputs, _ in islice(batches, 2))
    assert not torch.equal(first, second)
    assert torch.equal(model(characters()), second)


def test_no_gradient_flows_into_the_batch_before():
    model = CharRNN()
    for inputs, _ in carry_state(model, iter([(characters(), None)] * 2), 3):
        model(inputs).sum().backward()  # would raise if it reached the first batch's graph
    assert not model.state.requires_grad


def test_each_row_of_a_batch_continues_the_row_of_the_batch_before(tmp_path):
    write_text(tmp_path / "text", characters=20_000)
    task = PROBLEMS["tolstoi_char_rnn"].ready(seed=0, data_dir=tmp_path, batch_size=20)
    batches = list(task.batches())
    assert len(batches) == task.steps_per_epoch == 11
    for (_, before), (inputs, targets) in pairwise(batches):
        assert torch.equal(inputs[:, 0], before[:, -1])
        assert torch.equal(inputs[:, 1:], targets[:, :-1])


def test_an_evaluation_amid_an_epoch_leaves_the_state(tmp_path):
    write_text(tmp_path / "text", characters=20_000)
    ready = PROBLEMS["tolstoi_char_rnn"].ready

    def losses(evaluated):
        task = ready(seed=0, data_dir=tmp_path, batch_size=20, subset=9_000)
        found = []
        for batch in task.batches():
            found.append(task.loss(batch).item())
            if evaluated:
                task.evaluate("valid")
        return found

    assert losses(evaluated=False) == losses(evaluated=True)


def test_a_probe_leaves_the_carried_state(tmp_path):
    write_text(tmp_path / "text", characters=20_000)

    def losses(wrap):
        task = PROBLEMS["tolstoi_char_rnn"].ready(
            seed=0, data_dir=tmp_path, batch_size=20, subset=9_000
        )
        optimizer = wrap(torch.optim.SGD(task.params, lr=0.5))

        def closure(batch, backward):
            optimizer.zero_grad()
            loss = task.loss(batch)
            if backward:
                loss.backward()
            return loss

        is_bare = type(optimizer) is torch.optim.SGD
        return [optimizer.step(partial(closure, b, is_bare)).item() for b in task.batches()]

    still = PaperRule(up=1.0, down=1.0)
    assert losses(lambda bare: bare) == losses(lambda bare: ProbStep(bare, rule=still))


def test_every_epoch_starts_from_the_zero_state(tmp_path):
    write_text(tmp_path / "text", characters=20_000)
    task = PROBLEMS["tolstoi_char_rnn"].ready(seed=0, data_dir=tmp_path, batch_size=20)
    task.model.eval()
    first, second = ([task.loss(batch).item() for batch in task.batches()][:2] for _ in range(2))
    assert first == second
