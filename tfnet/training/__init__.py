"""Training: the step, the loop around it, and evaluation.

Takes a strategy, a Keras model and examples; gives numbers. Knows nothing of
settings, directories or screens.
"""

from tfnet.training.evaluation import (
    Evaluation,
    create_evaluate_function,
    evaluate,
)
from tfnet.training.loop import BlockResult, train_epoch
from tfnet.training.optimizers import create_optimizer
from tfnet.training.step import create_train_function

__all__ = [
    "BlockResult",
    "Evaluation",
    "create_evaluate_function",
    "create_optimizer",
    "create_train_function",
    "evaluate",
    "train_epoch",
]
