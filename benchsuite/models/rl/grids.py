"""Levels of MiniGrid and BabyAI, several in step. Imports no torch: processes that only play do not need it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import gymnasium
import minigrid  # noqa: F401  registers its levels
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv

from benchsuite.errors import ModelError, nearest
from benchsuite.models.rl.cpus import usable_cpus

# The words of BabyAI's grammar; 0 is padding and 1 any other word.
WORDS = (  # noqa: SIM905  thirty quoted words would read worse
    "pick up go to open put next the a red green blue purple yellow grey object box ball key door "
    "then after you and in front of behind on your left right"
).split()
TOKENS = {word: number for number, word in enumerate(WORDS, start=2)}


def tokens(mission: str, words: int) -> np.ndarray:
    """[words]: the numbers of a mission's words, padded with 0.

    Raises:
        ModelError: the mission has more words.
    """
    found = [TOKENS.get(word, 1) for word in mission.replace(",", " ").split()]
    if len(found) > words:
        raise ModelError(f"minigrid: the mission '{mission}' has {len(found)} words; raise 'words', which is {words}")
    return np.array(found + [0] * (words - len(found)), dtype=np.int64)


class Grids(gymnasium.Env):
    """Several environments of one level. An environment whose episode ends begins the next one within the same step.

    Rewards and ends are part of the observation. All parts are [environments, ...].
    """

    def __init__(self, level: str, environments: int, words: int) -> None:
        self.words = words
        self.levels = [gymnasium.make(level, disable_env_checker=True) for _ in range(environments)]
        image = self.levels[0].observation_space["image"]
        self.observation_space = spaces.Dict(
            image=spaces.Box(0, 255, (environments, *image.shape), np.uint8),
            mission=spaces.Box(0, len(WORDS) + 1, (environments, words), np.int64),
            reward=spaces.Box(-np.inf, np.inf, (environments,), np.float32),
            ended=spaces.MultiBinary(environments),
        )
        self.action_space = spaces.MultiDiscrete([int(self.levels[0].action_space.n)] * environments)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin all environments. The first one has the given seed, each other one the next seed."""
        began = [level.reset(seed=None if seed is None else seed + i)[0] for i, level in enumerate(self.levels)]
        return self._joined([(observation, 0.0, False) for observation in began]), {}

    def step(self, action: Sequence[int]) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        met = []
        for level, one in zip(self.levels, action, strict=True):
            observation, reward, over, cut, _ = level.step(int(one))
            if over or cut:
                observation, _ = level.reset()
            met.append((observation, float(reward), over or cut))
        return self._joined(met), 0.0, False, False, {}

    def _joined(self, met: list[tuple[Any, float, bool]]) -> dict[str, np.ndarray]:
        return {
            "image": np.stack([observation["image"] for observation, _, _ in met]),
            "mission": np.stack([tokens(observation["mission"], self.words) for observation, _, _ in met]),
            "reward": np.array([reward for _, reward, _ in met], dtype=np.float32),
            "ended": np.array([ended for _, _, ended in met], dtype=np.int8),
        }


class Players:
    """Environments of a level, in this process or, with 2 workers or more, in processes of their own.

    The environments behave the same for any number of workers. 0 workers: one for each usable CPU, or the next smaller
    number that gives all workers equal shares.
    """

    def __init__(self, level: str, environments: int, words: int, workers: int, seed: int) -> None:
        if level not in gymnasium.registry:
            known = [name for name in gymnasium.registry if name.startswith(("BabyAI", "MiniGrid"))]
            raise ModelError(f"minigrid: no level '{level}'{nearest(level, known)}")
        workers = workers or max(n for n in range(1, usable_cpus() + 1) if environments % n == 0)
        if workers < 0 or environments % workers:
            raise ModelError(f"minigrid: {environments} environments cannot be shared out evenly to {workers} workers")
        self.environments, self.share, self.seed, self.workers = environments, environments // workers, seed, workers
        make = partial(Grids, level, self.share, words)
        # Processes are spawned, since a fork would copy a process in which CUDA and torch's threads are at work.
        self.grids: Any = make() if workers == 1 else AsyncVectorEnv([make] * workers, context="spawn")
        one_worker = self.grids.action_space if workers == 1 else self.grids.single_action_space
        self.actions = int(one_worker.nvec[0])

    def reset(self) -> dict[str, np.ndarray]:
        """The observation's parts, each [environments, ...], with `reward` and `ended`."""
        if self.workers == 1:
            return self._whole(self.grids.reset(seed=self.seed)[0])
        return self._whole(self.grids.reset(seed=[self.seed + i * self.share for i in range(self.workers)])[0])

    def step(self, actions: np.ndarray) -> dict[str, np.ndarray]:
        if self.workers > 1:
            actions = actions.reshape(self.workers, self.share)
        return self._whole(self.grids.step(actions)[0])

    def close(self) -> None:
        self.grids.close()

    def _whole(self, observation: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The parts of all workers, concatenated."""
        if self.workers == 1:
            return observation
        return {key: value.reshape(self.environments, *value.shape[2:]) for key, value in observation.items()}
