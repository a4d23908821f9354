"""Learning rates: functions of the number of the step, and of nothing else."""

import dataclasses

import numpy as np

# Of PyTorch's OneCycleLR: how much lower it begins and ends, and how long it
# rises.
_ONE_CYCLE_BEGIN = 25.0
_ONE_CYCLE_END = 1e4
_ONE_CYCLE_RISE = 0.3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schedule:
    """The learning rate of every step of a run.

    Attributes:
      kind: `constant`; `step`: multiplied by `decay` every `decay_every`
        steps; `cosine`: rate * (1 + cos(pi * t)) / 2 over the run, after the
        warm-up (Loshchilov and Hutter, SGDR, 2017, without restarts);
        `one_cycle`: over the first 30 % of the run up from rate / 25, then
        down to rate / 250,000, both along half a cosine (Smith and Topin,
        Super-Convergence, 2018, as PyTorch's OneCycleLR has it, at a constant
        momentum).
      rate: The highest rate.
      total_steps: Steps of the run.
      warmup_steps: Of the first so many steps, the i-th (from 1) has
        i / warmup_steps of the rate.
      decay: For `step`.
      decay_every: For `step`: steps.
    """

    kind: str
    rate: float
    total_steps: int
    warmup_steps: int = 0
    decay: float = 0.1
    decay_every: int = 1

    def __call__(self, steps: np.ndarray) -> np.ndarray:
        """Returns the learning rates: float64 [steps].

        Args:
          steps: Numbers of steps, counted from 0: int64 [steps].
        """
        if self.kind == "one_cycle":
            return self._one_cycle(steps)
        if self.kind == "step":
            rates = self.rate * self.decay ** (steps // self.decay_every)
        elif self.kind == "cosine":
            after = self.total_steps - self.warmup_steps
            done = np.clip((steps - self.warmup_steps) / max(after, 1), 0, 1)
            rates = self.rate * _half_cosine(done)
        else:
            rates = np.full(len(steps), self.rate)
        if self.warmup_steps:
            rates = rates * np.minimum((steps + 1) / self.warmup_steps, 1)
        return rates

    def _one_cycle(self, steps: np.ndarray) -> np.ndarray:
        low = self.rate / _ONE_CYCLE_BEGIN
        # OneCycleLR counts both ends: the top is a step, the last step is low.
        top = max(_ONE_CYCLE_RISE * self.total_steps - 1, 1e-9)
        last = max(self.total_steps - 1, top + 1e-9)
        rising = low + (self.rate - low) * (1 - _half_cosine(steps / top))
        done = np.clip((steps - top) / (last - top), 0, 1)
        end = low / _ONE_CYCLE_END
        falling = end + (self.rate - end) * _half_cosine(done)
        return np.where(steps <= top, rising, falling)


def _half_cosine(done: np.ndarray) -> np.ndarray:
    """From 1 at 0 to 0 at 1."""
    return (1 + np.cos(np.pi * done)) / 2
