"""T-Mazes as Gymnasium environments; importing this module registers ``TMaze-v0`` and ``PassiveTMaze-v0``."""

from typing import Any

import numpy as np
import torch

from multistable.extras import missing
from multistable.rl.passive_tmaze import TURNS, PassiveTMaze
from multistable.rl.tmaze import ACTIONS, OBSERVATIONS, TMaze

try:
    import gymnasium
    from gymnasium import spaces
except ModuleNotFoundError as error:
    raise missing("a Gymnasium environment", "gymnasium") from error

ID = "multistable/TMaze-v0"
PASSIVE_ID = "multistable/PassiveTMaze-v0"

_PIXELS = 16
_WALL, _FLOOR, _START, _AGENT, _TREASURE, _TRAP = np.array(
    [(64, 64, 64), (240, 240, 240), (190, 205, 240), (20, 20, 20), (70, 170, 80), (210, 80, 70)], dtype=np.uint8
)


class TMazeEnv(gymnasium.Env[np.int64, np.int64]):
    """One T-Maze (appendix D); actions and observations are indices, see ``ACTIONS`` and ``OBSERVATIONS``.

    The layout is drawn at each reset; ``reset(options={"layout": "up"})`` chooses it. Steps after the end leave
    the maze as it is and give nothing.

    Args:
        length: L, the length of the corridor.
        horizon: after how many steps an episode is truncated: the paper's H by default, ``math.inf`` for never.
        render_mode: ``"ansi"`` for three lines of text, ``"rgb_array"`` for a picture.
    """

    metadata = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}  # noqa: RUF012 (as Gymnasium declares it)

    def __init__(self, length: int = 20, *, horizon: float | None = None, render_mode: str | None = None) -> None:
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise ValueError(f"render_mode must be None, 'ansi' or 'rgb_array', got {render_mode!r}")
        self.maze = TMaze(length, dtype=torch.float64)
        self.horizon = self.maze.horizon if horizon is None else horizon
        if not self.horizon >= 1:
            raise ValueError(f"horizon must be at least 1, got {horizon!r}")
        self.render_mode = render_mode
        self.action_space = spaces.Discrete(len(ACTIONS))
        self.observation_space = spaces.Discrete(len(OBSERVATIONS))
        self._state: torch.Tensor | None = None
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.int64, dict[str, Any]]:
        super().reset(seed=seed)
        layout = (options or {}).get("layout")
        if layout not in (None, "up", "down"):
            raise ValueError(f"options['layout'] must be 'up' or 'down', got {layout!r}")
        draw = self.np_random.random() if layout is None else {"up": 0.25, "down": 0.75}[layout]
        self._state, _ = self.maze.reset(torch.tensor(draw))
        self._steps = 0
        return self._observation(), {}

    def step(self, action: np.int64) -> tuple[np.int64, float, bool, bool, dict[str, Any]]:
        if not self.action_space.contains(action):
            raise ValueError(f"action must be one of 0, ..., {len(ACTIONS) - 1} ({', '.join(ACTIONS)}), got {action!r}")
        outcome = self.maze.step(self._begun(), torch.tensor(int(action)))
        self._state = outcome.state
        self._steps += 1
        terminated = bool(outcome.terminated)
        truncated = not terminated and self._steps >= self.horizon
        return self._observation(), float(outcome.reward), terminated, truncated, {}

    def render(self) -> Any:
        if self.render_mode is None:
            gymnasium.logger.warn("render needs a render_mode: gymnasium.make(..., render_mode='ansi')")
            return None
        return self._text() if self.render_mode == "ansi" else self._picture()

    def _begun(self) -> torch.Tensor:
        if self._state is None:
            raise gymnasium.error.ResetNeeded("reset must be called before step and render")
        return self._state

    def _observation(self) -> np.int64:
        return np.int64(int(self.maze.observe(self._begun())))

    def _place(self) -> tuple[bool, int, int]:
        """Whether the layout is Up, and the row (0 above) and column of the agent."""
        layout, x, y = (int(field) for field in self.maze.coordinates(self._begun()))
        return layout == 0, 1 - y, x

    def _text(self) -> str:
        up, row, column = self._place()
        end = self.maze.length
        lines = [[" "] * end + ["$" if up else "x"], ["."] * (end + 1), [" "] * end + ["x" if up else "$"]]
        lines[row][column] = "@"
        return "\n".join(map("".join, lines)) + "\n"

    def _picture(self) -> np.ndarray[Any, Any]:
        up, row, column = self._place()
        cells = np.tile(_WALL, (3, self.maze.length + 1, 1))
        cells[1] = _FLOOR
        cells[1, 0] = _START
        cells[0, -1], cells[2, -1] = (_TREASURE, _TRAP) if up else (_TRAP, _TREASURE)
        picture = cells.repeat(_PIXELS, axis=0).repeat(_PIXELS, axis=1)
        inset = _PIXELS // 4
        rows, columns = (slice(i * _PIXELS + inset, (i + 1) * _PIXELS - inset) for i in (row, column))
        picture[rows, columns] = _AGENT
        return picture


class PassiveTMazeEnv(gymnasium.Env[Any, np.int64]):
    """One :class:`PassiveTMaze`; actions are indices into ``TURNS``.

    Observations are indices into ``OBSERVATIONS``; with noise they are vectors, one-hot and then the noise. The cue is
    drawn at each reset; ``reset(options={"cue": "up"})`` chooses it.

    Args:
        length: L, the steps from the cue to the junction.
        noise: standard deviation of the noise; 0 for none.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 (as Gymnasium declares it)

    def __init__(self, length: int = 50, *, noise: float = 0.0) -> None:
        self.maze = PassiveTMaze(length, noise=noise)
        self.action_space = spaces.Discrete(len(TURNS))
        size = (self.maze.observation_size,)
        self.observation_space = spaces.Box(-np.inf, np.inf, size) if noise else spaces.Discrete(len(OBSERVATIONS))
        self._state: torch.Tensor | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        cue = (options or {}).get("cue")
        if cue not in (None, *TURNS):
            raise ValueError(f"options['cue'] must be 'up' or 'down', got {cue!r}")
        draw = self.np_random.random()
        draw = draw if cue is None else (draw + TURNS.index(cue)) / 2
        self._state, observation = self.maze.reset(torch.tensor(draw, dtype=torch.float64))
        return self._seen(observation), {}

    def step(self, action: np.int64) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if not self.action_space.contains(action):
            raise ValueError(f"action must be one of 0, 1 ({', '.join(TURNS)}), got {action!r}")
        if self._state is None:
            raise gymnasium.error.ResetNeeded("reset must be called before step")
        self._state, observation, reward, terminated, _ = self.maze.step(self._state, torch.tensor(int(action)))
        return self._seen(observation), float(reward), bool(terminated), False, {}

    def _seen(self, observation: torch.Tensor) -> Any:
        return observation.numpy() if self.maze.noise else np.int64(int(observation.argmax()))


for name, place in ((ID, "TMazeEnv"), (PASSIVE_ID, "PassiveTMazeEnv")):
    if name not in gymnasium.registry:
        gymnasium.register(name, entry_point=f"multistable.rl.environment:{place}")
