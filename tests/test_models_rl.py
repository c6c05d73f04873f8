"""The models that learn by reinforcement in environments: atari and minigrid."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("gymnasium")
pytest.importorskip("ale_py")
pytest.importorskip("minigrid")

import numpy as np
import torch
from support import benchsuite, environ, read_results, write_profile
from torch import nn

from benchsuite.describe import entries
from benchsuite.errors import ModelError
from benchsuite.models import atari, minigrid
from benchsuite.models.rl.grids import WORDS, Players, tokens
from benchsuite.models.rl.ppo import Ppo, Settings

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]


def test_what_the_models_share_is_no_model() -> None:
    assert "rl" not in entries.names() and "ppo" not in entries.names()


# --- atari ------------------------------------------------------------------------------------------------------------


def test_games_are_frames_of_pong_and_a_function_of_the_seed() -> None:
    runs = []
    for seed, workers in ((3, 1), (3, 2), (4, 1)):
        games = atari.Games(2, workers, seed)
        screens = [games.reset()[0]]
        rewards = []
        for step in range(60):
            (screen,), reward, ended = games.step(torch.tensor([step % 6, 2]))
            screens.append(screen)
            rewards.append(reward)
            assert reward.dtype == torch.float32 and ended.dtype == torch.bool
        runs.append((torch.stack(screens), torch.stack(rewards)))
        games.games.close()
    screens, rewards = runs[0]
    assert screens.shape == (61, 2, 4, 84, 84) and screens.dtype == torch.uint8
    assert torch.equal(screens, runs[1][0]) and not torch.equal(screens, runs[2][0])
    assert torch.equal(screens[1:, :, :3], screens[:-1, :, 1:]), "a new frame moves the others along"
    assert not torch.equal(screens[:, 0], screens[:, 1]), "each game is its own"
    assert set(rewards.unique().tolist()) <= {-1.0, 0.0, 1.0} and float(rewards.sum()) < 0


def test_a_step_of_a_game_is_four_frames_of_the_emulator() -> None:
    games = atari.Games(2, 1, 0)
    _, before = games.games.reset(seed=0)
    after = before
    for _ in range(10):
        *_, after = games.games.step(np.zeros(2, dtype=np.int64))
    assert (after["episode_frame_number"] - before["episode_frame_number"]).tolist() == [40, 40]
    games.games.close()


MINIGRID = 1_026_696


def size(net: nn.Module) -> int:
    return sum(value.numel() for value in net.parameters())


def test_sizes() -> None:
    with torch.device("meta"):
        assert size(atari.Player(6)) == 1_687_719
        assert size(minigrid.Agent(7, 128, memory=True)) == MINIGRID
        assert size(minigrid.Agent(7, 128, memory=False)) == MINIGRID - 2 * 3 * (128 * 128 + 128)


def test_a_round_of_pong_counts_the_steps_really_made() -> None:
    torch.manual_seed(0)
    workload = atari.build(atari.Params(environments=3, steps=6, minibatches=3, epochs=1, workers=1))
    assert workload.step is not None
    assert [workload.step(None) for _ in range(2)] == [18, 18]
    assert workload.unit == "environment step"


# --- minigrid ---------------------------------------------------------------------------------------------------------


def play(workers: int, steps: int = 80) -> list[dict[str, np.ndarray]]:
    players = Players("BabyAI-UnlockPickup-v0", 4, 6, workers, seed=7)
    met = [players.reset()]
    draws = np.random.default_rng(0)
    met += [{key: value.copy() for key, value in players.step(draws.integers(0, 7, 4)).items()} for _ in range(steps)]
    players.close()
    return met


def test_environments_play_the_same_in_any_number_of_processes() -> None:
    alone, shared = play(1), play(2)
    for one, other in zip(alone, shared, strict=True):
        assert {key: value.shape for key, value in one.items()} == {
            "image": (4, 7, 7, 3),
            "mission": (4, 6),
            "reward": (4,),
            "ended": (4,),
        }
        assert all(np.array_equal(one[key], other[key]) for key in one)
    ended = np.stack([one["ended"] for one in alone[1:]])
    assert ended[71].tolist() == [1, 1, 1, 1], "an episode has 72 frames"
    assert ended.sum() == 4
    assert len({one["mission"].tobytes() for one in alone}) > 1, "a new episode has a new mission"
    assert any(not np.array_equal(alone[0]["image"][0], alone[0]["image"][i]) for i in range(1, 4))


def test_processes_of_the_environments_find_the_package_where_it_lies_in_the_current_folder(tmp_path: Path) -> None:
    """As in a clone with an editable install, where the path that a job must not see is also the package's."""
    small = {"environments": 4, "steps": 4, "recurrence": 2, "workers": 2, "units": 16}
    few = {"max_steps": 6, "min_time_s": 0, "max_time_s": 30, "timeout_s": 180}
    profile = write_profile(tmp_path / "p.json", a={"entry": None, "model": "minigrid", "params": small, **few})
    clone = Path(entries.__file__).parents[1]
    benchsuite("jobs", str(profile), "-o", str(tmp_path / "out"), cwd=clone, env=environ(PYTHONPATH=""), timeout=240)
    result = read_results(tmp_path / "out")["a"]
    assert result.error is None
    assert result.measurement is not None


def test_a_worker_that_has_ended_leaves_no_process() -> None:
    code = (
        "from benchsuite.models.rl.grids import Players\n"
        "if __name__ == '__main__':\n"
        "    players = Players('BabyAI-UnlockPickup-v0', 4, 6, 2, seed=7)\n"
        "    players.reset()\n"
        "    import sys; assert 'torch' not in sys.modules\n"
        "    print(*[process.pid for process in players.grids.processes])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stderr == ""
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 2
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_missions_become_numbers() -> None:
    found = tokens("pick up the grey box, then fly", 9).tolist()
    words = [WORDS[number - 2] if number > 1 else "?" for number in found if number]
    assert words == ["pick", "up", "the", "grey", "box", "then", "?"]
    assert len(found) == 9
    with pytest.raises(ModelError, match="the mission 'go to the ball' has 4 words; raise 'words', which is 3"):
        tokens("go to the ball", 3)
    assert len(set(WORDS)) == len(WORDS)


def test_every_word_of_the_level_is_known() -> None:
    players = Players("BabyAI-UnlockPickup-v0", 30, 6, 1, seed=0)
    missions = players.reset()["mission"]
    assert 1 not in missions and len({mission.tobytes() for mission in missions}) >= 4


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"level": "BabyAI-UnlockPickups-v0"}, "no level 'BabyAI-UnlockPickups-v0'; did you mean"),
        ({"environments": 3, "workers": 2}, "3 environments cannot be shared out evenly to 2 workers"),
        ({"workers": -1}, "cannot be shared out evenly"),
    ],
)
def test_levels_and_workers_that_cannot_be_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        minigrid.build(minigrid.Params(**{**minigrid.SMALL, **changed}))


def test_a_mission_is_heard_to_its_last_word() -> None:
    torch.manual_seed(0)
    agent = minigrid.Agent(7, 16, memory=False)
    missions = torch.from_numpy(np.stack([tokens("go to the red box", 8), tokens("open the door", 8)]))
    heard = agent.hear(missions)
    for row, count in ((0, 5), (1, 3)):
        assert torch.allclose(heard[row], agent.hear(missions[row : row + 1, :count])[0], atol=1e-6)
    assert agent.hear(torch.zeros(1, 8, dtype=torch.long)).isfinite().all()


@pytest.mark.parametrize("memory", [True, False])
def test_steps_together_are_steps_one_by_one(memory: bool) -> None:
    torch.manual_seed(0)
    agent = minigrid.Agent(7, 16, memory)
    images = torch.randint(0, 10, (2, 5, 7, 7, 3), dtype=torch.uint8)
    missions = torch.randint(1, 20, (2, 5, 8))
    first = torch.zeros(2, 5)
    first[0, 3] = 1
    held = torch.randn(2, 16 if memory else 0)
    together = agent(images, missions, held, first)
    logits, values = [], []
    for step in range(5):
        one = slice(step, step + 1)
        logit, value, held = agent(images[:, one], missions[:, one], held, first[:, one])
        logits.append(logit)
        values.append(value)
    assert torch.allclose(together[0], torch.cat(logits, dim=1), atol=1e-5)
    assert torch.allclose(together[1], torch.cat(values, dim=1), atol=1e-5)
    assert torch.allclose(together[2], held, atol=1e-5)


@pytest.mark.parametrize("memory", [True, False])
def test_a_round_in_the_grid_counts_frames_and_moves_every_weight(memory: bool) -> None:
    torch.manual_seed(0)
    workload = minigrid.build(minigrid.Params(**{**minigrid.SMALL, "memory": memory, "steps": 9}))
    agent = workload.modules["agent"]
    before = [value.detach().clone() for value in agent.parameters()]
    assert workload.step is not None
    assert [workload.step(None) for _ in range(2)] == [18, 18]
    moved = [not torch.equal(a, b) for a, b in zip(before, agent.parameters(), strict=True)]
    assert all(moved)
    assert list(itertools.islice(workload.batches(None), 2)) == [None, None]  # type: ignore[arg-type]


def test_the_policy_that_learns_is_the_one_that_acted() -> None:
    """Before the first update the ratio is 1: what was gathered step by step is found again in whole sequences."""
    torch.manual_seed(0)
    players = Players("BabyAI-UnlockPickup-v0", 2, 6, 1, seed=1)
    agent = minigrid.Agent(players.actions, 16, memory=True)
    settings = Settings(
        steps=8,
        epochs=4,
        minibatches=1,
        recurrence=4,
        gamma=0.9,
        gae_lambda=0.8,
        clip=0.2,
        entropy_weight=0.01,
        lr=1e-2,
    )
    ppo = Ppo(agent, minigrid.Levels(players, 20.0), settings, memory_units=16)
    for _ in range(2):
        with torch.no_grad():
            rollout = ppo.collect()
            (part,) = rollout.parts(4, 1)
            logits, values, _ = agent(*part.observation, part.memory[:, 0], part.first)
        logs = logits.log_softmax(dim=2).gather(2, part.actions[:, :, None]).squeeze(2)
        assert torch.allclose(logs, part.log_probabilities, atol=1e-5)
        assert torch.allclose(values, part.values, atol=1e-5)
