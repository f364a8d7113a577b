"""Trainings whose loss is not what is to be reduced: played episodes, adversaries, moving targets."""

import math
from collections.abc import Callable
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from .data import Batch, digits, generator
from .hazard import Hazard, Player, Training, pair
from .nets import alone, mlp

LIMIT = 100  # steps of an episode with the pole


class Poles:
    """Many carts with poles at once, after Barto, Sutton and Anderson (1983): push left or right.

    An episode ends when the pole leans by 12 degrees, the cart leaves the track, or time is up.
    """

    def __init__(self, count: int, stream: torch.Generator) -> None:
        self.state = 0.1 * torch.rand(count, 4, generator=stream) - 0.05

    def push(self, right: Tensor) -> Tensor:
        """Move all carts for a fiftieth of a second; return which are still up."""
        x, v, a, w = self.state.unbind(1)
        force = 10.0 * (2.0 * right - 1.0)
        inner = (force + 0.05 * w.square() * a.sin()) / 1.1
        turn = (9.8 * a.sin() - a.cos() * inner) / (0.5 * (4 / 3 - 0.1 * a.cos().square() / 1.1))
        push = inner - 0.05 * turn * a.cos() / 1.1
        self.state = torch.stack([x + 0.02 * v, v + 0.02 * push, a + 0.02 * w, w + 0.02 * turn], 1)
        return (self.state[:, 0].abs() < 2.4) & (self.state[:, 2].abs() < math.pi / 15)


def play(policy: nn.Module, count: int, stream: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Return states, actions and whether each was still up, for LIMIT steps of so many poles."""
    poles, up = Poles(count, stream), torch.ones(count, dtype=torch.bool)
    states, actions, alive = [], [], []
    with torch.no_grad():
        for _ in range(LIMIT):
            chance = torch.softmax(policy(poles.state), 1)[:, 1]
            right = (torch.rand(count, generator=stream) < chance).long()
            states.append(poles.state)
            actions.append(right)
            alive.append(up)
            up = up & poles.push(right)
    return torch.stack(states), torch.stack(actions), torch.stack(alive).float()


def mean_time_up(policy: nn.Module) -> float:
    """Return how long the poles stand, in points of the longest possible."""
    _, _, alive = play(policy, 64, generator(95))
    return 100 * alive.mean().item()


def reinforce(baseline: bool) -> Callable[[int], Training]:
    """Return what builds REINFORCE (Williams, 1992): the loss is no measure of the return."""

    def build(seed: int) -> Training:
        policy, stream = mlp(4, 32, 2, act=nn.Tanh), generator(seed)

        def episode(_: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
            states, actions, alive = play(policy, 8, stream)
            to_come = alive.flip(0).cumsum(0).flip(0) / 10
            if baseline:
                to_come = to_come - (to_come * alive).sum() / alive.sum()
            return states, actions, alive, to_come

        def loss(played: tuple[Tensor, Tensor, Tensor, Tensor]) -> Tensor:
            states, actions, alive, value = played
            logs = F.log_softmax(policy(states), 2).gather(2, actions[..., None])[..., 0]
            return -(logs * value * alive).sum() / alive.sum()

        measure = lambda: mean_time_up(policy)  # noqa: E731
        return Training(150, alone(policy.parameters(), episode, loss), measure)

    return build


def bandit(entropy: float) -> Callable[[int], Training]:
    """Return what builds a policy that picks one of ten arms for each context."""

    def build(seed: int) -> Training:
        (x, y), _ = digits()
        policy, stream = mlp(64, 32, 10), generator(seed)

        def pull(_: int) -> tuple[Tensor, Tensor, Tensor]:
            chosen = torch.randint(len(x), (64,), generator=stream)
            with torch.no_grad():
                arms = torch.multinomial(policy(x[chosen]).softmax(1), 1, generator=stream)
            return x[chosen], arms, (arms[:, 0] == y[chosen]).float() - 0.1

        def loss(pulled: tuple[Tensor, Tensor, Tensor]) -> Tensor:
            a, arms, reward = pulled
            logs = F.log_softmax(policy(a), 1)
            spread = -(logs.exp() * logs).sum(1).mean()
            return -(logs.gather(1, arms)[:, 0] * reward).mean() - entropy * spread

        def measure() -> float:
            return 100 * policy(x).softmax(1).gather(1, y[:, None]).mean().item()

        return Training(1200, alone(policy.parameters(), pull, loss), measure)

    return build


def ring(count: int, stream: torch.Generator) -> Tensor:
    """Return points of eight clouds on a circle."""
    angle = torch.randint(8, (count,), generator=stream) * (math.pi / 4)
    centre = torch.stack([angle.cos(), angle.sin()], 1)
    return 2 * centre + 0.1 * torch.randn(count, 2, generator=stream)


def crescent(count: int, stream: torch.Generator) -> Tensor:
    """Return points along one half of a circle."""
    angle = math.pi * torch.rand(count, generator=stream)
    centre = torch.stack([angle.cos(), angle.sin()], 1)
    return centre + 0.1 * torch.randn(count, 2, generator=stream)


def energy_distance(a: Tensor, b: Tensor) -> float:
    """Return how far two clouds are apart: zero for two samples of one distribution."""
    between, within = torch.cdist(a, b).mean(), torch.cdist(a, a).mean() + torch.cdist(b, b).mean()
    return max((2 * between - within).item(), 0.0)


def adversaries(
    real: Callable[[int, torch.Generator], Tensor], hinge: bool, steps: int = 800
) -> Callable[[int], Training]:
    """Return what builds a generator and its critic (Goodfellow et al., 2014)."""

    def build(seed: int) -> Training:
        maker, critic, stream = mlp(4, 32, 32, 2), mlp(2, 32, 32, 1), generator(seed)

        def draw(_: int) -> Batch:
            return real(64, stream), torch.randn(64, 4, generator=stream)

        def of_critic(drawn: Batch) -> Tensor:
            points, seeds = drawn
            good, bad = critic(points), critic(maker(seeds).detach())
            if hinge:
                return F.relu(1 - good).mean() + F.relu(1 + bad).mean()
            return F.softplus(-good).mean() + F.softplus(bad).mean()

        def of_maker(drawn: Batch) -> Tensor:
            score = critic(maker(drawn[1]))
            return -score.mean() if hinge else F.softplus(-score).mean()

        def measure() -> float:
            held = generator(94)
            return energy_distance(maker(torch.randn(500, 4, generator=held)), real(500, held))

        players = (
            Player(list(critic.parameters()), draw, of_critic),
            Player(list(maker.parameters()), draw, of_maker),
        )
        return Training(steps, players, measure)

    return build


def random_walk(seed: int) -> Training:
    """Values of a walk by TD(0): the target is what the net itself says of the next place."""
    net, stream = mlp(21, 32, 1), generator(seed)
    places = torch.eye(21)

    def walk(_: int) -> tuple[Tensor, Tensor, Tensor]:
        at = torch.randint(1, 20, (32,), generator=stream)
        onto = at + 2 * torch.randint(2, (32,), generator=stream) - 1
        has_ended = (onto == 0) | (onto == 20)
        with torch.no_grad():
            value = net(places[onto])[:, 0]
        return at, torch.where(has_ended, (onto == 20).float(), value), onto

    def loss(walked: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        return F.mse_loss(net(places[walked[0]])[:, 0], walked[1])

    true = torch.linspace(0, 1, 21)[1:20]

    def measure() -> float:
        return F.mse_loss(net(places[1:20])[:, 0], true).item()

    return Training(1500, alone(net.parameters(), walk, loss), measure)


def deep_q(seed: int) -> Training:
    """Q-learning of the pole with a target net that is copied now and then (Mnih et al., 2015)."""
    net, stream = mlp(4, 48, 2), generator(seed)
    target, memory, poles = deepcopy(net), [], [Poles(8, stream)]

    def collect(t: int) -> tuple[Tensor, ...]:
        now, state = poles[0], poles[0].state
        greedy = net(state).argmax(1)
        explores = torch.rand(8, generator=stream) < max(0.05, 1 - t / 500)
        action = torch.where(explores, torch.randint(2, (8,), generator=stream), greedy)
        up = now.push(action)
        memory.append((state, action, now.state, up))
        now.state = torch.where(up[:, None], now.state, Poles(8, stream).state)
        rows = torch.randint(len(memory), (64,), generator=stream).tolist()
        cells = torch.randint(8, (64,), generator=stream).tolist()
        drawn = [[part[c] for part in memory[r]] for r, c in zip(rows, cells, strict=True)]
        return tuple(torch.stack(part) for part in zip(*drawn, strict=True))

    def draw(t: int) -> tuple[Tensor, Tensor, Tensor]:
        if t % 50 == 0:
            target.load_state_dict(net.state_dict())
        with torch.no_grad():
            state, action, after, up = collect(t)
            return state, action, 1 + 0.95 * up * target(after).amax(1)

    def loss(drawn: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        state, action, value = drawn
        return F.smooth_l1_loss(net(state).gather(1, action[:, None])[:, 0], value)

    measure = lambda: mean_time_up(Greedy(net))  # noqa: E731
    return Training(1500, alone(net.parameters(), draw, loss), measure)


class Greedy(nn.Module):
    """The policy that always does what the net values most."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, state: Tensor) -> Tensor:
        return 1e4 * self.net(state)


OBJECTIVES: tuple[Hazard, ...] = (
    *pair(
        "policy gradient",
        Hazard("pole-reinforce", reinforce(baseline=True), rate=1e-2, measured="score"),
        Hazard("pole-no-baseline", reinforce(baseline=False), rate=1e-2, measured="score"),
    ),
    *pair(
        "policy gradient",
        Hazard("bandit", bandit(0.0), measured="score"),
        Hazard("bandit-entropy-momentum", bandit(0.01), "momentum", 0.1, "score"),
    ),
    *pair(
        "adversarial",
        Hazard("gan-ring", adversaries(ring, hinge=False)),
        Hazard("gan-crescent-hinge", adversaries(crescent, hinge=True)),
    ),
    *pair(
        "bootstrapped",
        Hazard("td-random-walk", random_walk),
        Hazard("deep-q-pole", deep_q, measured="score"),
    ),
)
