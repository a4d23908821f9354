"""Training: the step, the loop around it, and evaluation.

Takes a strategy, a Keras model and examples; gives numbers. Knows nothing of
settings, directories or screens.
"""

from tfnet.training.evaluation import (
    Evaluation,
    create_evaluate_function,
    evaluate,
)
from tfnet.training.layers import synchronise
from tfnet.training.loop import BlockResult, train_epoch
from tfnet.training.objective import Objective, balanced_weights
from tfnet.training.optimizers import create_optimizer
from tfnet.training.probe import try_in_shares
from tfnet.training.schedules import Schedule
from tfnet.training.share import NotUnderXlaError
from tfnet.training.state import TrainState
from tfnet.training.step import StepRule, TrainFunction
from tfnet.training.update import Clipping

__all__ = [
    "BlockResult",
    "Clipping",
    "Evaluation",
    "NotUnderXlaError",
    "Objective",
    "Schedule",
    "StepRule",
    "TrainFunction",
    "TrainState",
    "balanced_weights",
    "create_evaluate_function",
    "create_optimizer",
    "evaluate",
    "synchronise",
    "train_epoch",
    "try_in_shares",
]
