"""Checkpoints carry everything: a resumed run is the uninterrupted one, bit for bit."""

import copy
import io
import math
import pickle
import warnings

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

import probstep
from probstep.step.replay import ModelHooks

from .cases import (
    OPTIMIZERS,
    batches,
    for_every_rule,
    network,
    plain_network,
    step_with_closure,
    train_bare,
)

SETTINGS = {
    "plain": {},
    "every third": {"probe": probstep.Every(3)},
    "running minimum": {"lower_bound": probstep.RunningMinimum(), "noise": 0.01},
    "robust": {"rule": probstep.RobustRule()},
}


def make(name, net=network, **settings):
    torch.manual_seed(5)
    model = net()
    case = OPTIMIZERS[name]
    with warnings.catch_warnings():
        if case.warns:
            warnings.simplefilter("ignore")
        settings = {"rule": probstep.PaperRule(), **settings}
        return model, probstep.ProbStep(case.make(model.parameters()), **settings)


def run(model, opt, data):
    return [step_with_closure(opt, model, batch).item() for batch in data]


def through_a_file(state, **options):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True, **options)


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        (name, setting)
        for name in OPTIMIZERS
        for setting in SETTINGS
        if not (
            "maximize" in name and setting == "running minimum"
        )  # refused: it is no upper bound
    ],
)
def test_a_resumed_run_equals_an_uninterrupted_one(name, setting):
    data = batches(12)
    model, opt = make(name, **SETTINGS[setting])
    run(model, opt, data[:7])
    saved = through_a_file(
        {"model": model.state_dict(), "opt": opt.state_dict(), "rng": torch.get_rng_state()}
    )
    expected = run(model, opt, data[7:])

    model, opt_again = make(name, **SETTINGS[setting])
    model.load_state_dict(saved["model"])
    opt_again.load_state_dict(saved["opt"])
    torch.set_rng_state(saved["rng"])
    assert run(model, opt_again, data[7:]) == expected
    assert opt_again.scale == opt.scale
    assert opt_again.metrics() == opt.metrics()


@for_every_rule
def test_going_back_to_a_checkpoint_goes_the_same_way_again(rule):
    data = batches(16)
    model, opt = make("sgd-momentum", plain_network, rule=rule)
    run(model, opt, data[:7])
    saved = through_a_file({"model": model.state_dict(), "opt": opt.state_dict()})
    expected = run(model, opt, data[7:])
    model.load_state_dict(saved["model"])
    opt.load_state_dict(saved["opt"])
    assert run(model, opt, data[7:]) == expected


@for_every_rule
def test_taking_a_checkpoint_changes_nothing_wherever_the_schedule_stands(rule):
    losses = []
    for is_saving in (False, True):
        model, opt = make("sgd-momentum", plain_network, rule=rule)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 20)
        seen = []
        for batch in batches(20):
            seen += run(model, opt, [batch])
            if is_saving:
                opt.state_dict()
            schedule.step()
        losses.append(seen)
    assert losses[0] == losses[1]


def test_a_bare_checkpoint_loads_and_a_wrapped_one_loads_into_the_bare_optimizer():
    data = batches(4)
    model, opt = make("adam")
    run(model, opt, data)
    bare = OPTIMIZERS["adam"].make(network().parameters())
    bare.load_state_dict(through_a_file(opt.state_dict()))
    bare.step()
    assert [v["step"] for v in bare.state_dict()["state"].values()] == [4.0] * 6

    model, opt = make("adam")
    opt.load_state_dict(through_a_file(bare_checkpoint(data)))
    assert opt.scale == 1.0
    run(model, opt, data)


def bare_checkpoint(data):
    model = network()
    bare = OPTIMIZERS["adam"].make(model.parameters())
    train_bare(model, bare, data)
    return bare.state_dict()


def test_a_checkpoint_does_not_change_while_training_goes_on():
    data = batches(4)
    model, opt = make("sgd")
    run(model, opt, data[:2])
    saved = opt.state_dict()
    before = pickle.dumps(saved["param_groups"])
    run(model, opt, data[2:])
    assert pickle.dumps(saved["param_groups"]) == before


def test_a_checkpoint_with_another_kind_of_bound_still_loads():
    data = batches(4)
    model, opt = make("sgd")
    run(model, opt, data)
    _, other = make("sgd", lower_bound=probstep.RunningMinimum())
    with pytest.warns(RuntimeWarning, match="'bound'"):
        other.load_state_dict(opt.state_dict())
    assert other.scale == opt.scale
    assert other.state_dict()["param_groups"][0]["probstep"]["bound"] == {"lowest": math.inf}


@pytest.mark.parametrize("how", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))])
def test_copies_go_on_alike_and_apart(how):
    data = batches(6)
    model, opt = make("adam", plain_network, lower_bound=probstep.RunningMinimum())
    run(model, opt, data[:3])
    model_copy, opt_copy = how((model, opt))
    state = torch.get_rng_state()
    expected = run(model, opt, data[3:])
    torch.set_rng_state(state)
    assert run(model_copy, opt_copy, data[3:]) == expected
    assert opt_copy.metrics() == opt.metrics()
    assert opt_copy.base is not opt.base


def test_a_copy_of_the_model_does_not_carry_the_optimizer():
    class Owner:
        heard = 0

        def hear(self, *_):
            self.heard += 1

    owner, model, (x, _) = Owner(), plain_network(), batches(1)[0]
    model.register_forward_pre_hook(ModelHooks(owner.hear, begins=True))
    twin = torch.optim.swa_utils.AveragedModel(model)
    twin(x)
    pickle.loads(pickle.dumps(model))(x)
    assert owner.heard == 0
    model(x)
    assert owner.heard == 1


@pytest.mark.parametrize("flatten", [False, True])
def test_a_distributed_checkpoint_resumes_bitwise(tmp_path, flatten):
    options = torch.distributed.checkpoint.state_dict.StateDictOptions(
        flatten_optimizer_state_dict=flatten
    )
    data = batches(8)
    model, opt = make("adam", lower_bound=probstep.RunningMinimum())
    run(model, opt, data[:4])
    model_state, opt_state = get_state_dict(model, opt, options=options)
    rng = torch.get_rng_state()
    with warnings.catch_warnings():  # dcp speaks of a process group that a single process lacks
        warnings.simplefilter("ignore")
        dcp.save({"model": model_state, "opt": opt_state}, checkpoint_id=tmp_path, no_dist=True)
    expected = run(model, opt, data[4:])

    model, again = make("adam", lower_bound=probstep.RunningMinimum())
    model_state, opt_state = get_state_dict(model, again, options=options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.load({"model": model_state, "opt": opt_state}, checkpoint_id=tmp_path, no_dist=True)
    set_state_dict(
        model, again, model_state_dict=model_state, optim_state_dict=opt_state, options=options
    )
    torch.set_rng_state(rng)
    assert run(model, again, data[4:]) == expected
    assert again.metrics() == opt.metrics()
    _, another = make("adam")
    assert (
        another.metrics()["probes/up"] == 0
    )  # loaded in place, but not into what others begin with


def test_a_fresh_optimizer_loads_a_distributed_checkpoint_without_a_warning():
    model, opt = make("adam")
    run(model, opt, batches(2))
    saved = get_state_dict(model, opt)
    model, fresh = make("adam")
    set_state_dict(model, fresh, model_state_dict=saved[0], optim_state_dict=saved[1])
    assert fresh.scale == opt.scale


def test_state_dict_hooks_fire_on_the_wrapper():
    calls = []
    _, opt = make("sgd")
    opt.register_state_dict_pre_hook(lambda o: calls.append("save"))
    opt.register_state_dict_post_hook(lambda o, state: calls.append("saved"))
    opt.register_load_state_dict_pre_hook(lambda o, state: calls.append("load"))
    opt.register_load_state_dict_post_hook(lambda o: calls.append("loaded"))
    opt.load_state_dict(opt.state_dict())
    assert calls == ["save", "saved", "load", "loaded"]
