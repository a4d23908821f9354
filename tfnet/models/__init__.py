"""Models: from an image shape and a number of classes to a Keras model."""

from tfnet.models.build import build_model

__all__ = ["build_model"]
