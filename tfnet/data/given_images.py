"""Images that a program gives: one rule, for training and for predictions."""

from typing import Any

import numpy as np

from tfnet.errors import DataError

_RULE = "[n, height, width, 3], or, grey, [n, height, width]"


def as_images(given: Any, name: str) -> np.ndarray:
    """Returns images in the one form that all else takes.

    Args:
      given: uint8, from 0 to 255: [n, height, width, 3], or, grey, [n, height,
        width, 1] or [n, height, width]; n at least 1.
      name: What the text of an error calls them.

    Returns:
      uint8 [n, height, width, 3]; grey is repeated.

    Raises:
      DataError: They are not like that; the text says how to make them so.
    """
    images = as_array(given, name)
    # What a person can call `astype` of.
    spelled = name if isinstance(given, np.ndarray) else f"np.asarray({name})"
    if images.dtype.kind not in "iubf":
        raise DataError(
            f"{name} must be an array of uint8, {_RULE}; it is"
            f" {_kind(given, images)}."
        )
    if images.dtype != np.uint8:
        raise DataError(
            f"{name} must be uint8, from 0 to 255; it is {images.dtype}."
            f" {_remedy(images, spelled)}"
        )
    if images.ndim == 3:
        images = images[..., np.newaxis]
    if images.ndim != 4 or images.shape[3] not in (1, 3):
        raise DataError(
            f"{name} must be {_RULE}; it is {list(np.shape(given))}"
            f"{_hint(images, spelled)}."
        )
    if 0 in images.shape:
        raise DataError(
            f"{name} must hold one image at least, of one pixel at least; it is"
            f" {list(np.shape(given))}."
        )
    if images.shape[3] == 1:
        images = np.repeat(images, 3, axis=3)
    return images


def refuse_one_image(given: Any, name: str) -> None:
    """Raises DataError for [height, width, 3]: `as_images` takes it as grey.

    With labels, their number tells; without, nothing would.
    """
    shape = as_array(given, name).shape
    if len(shape) == 3 and shape[2] in (3, 4):
        raise DataError(
            f"{name} must be {_RULE}; it is {list(shape)}. Of one image, take"
            f" np.asarray({name})[np.newaxis]; of grey images {shape[2]} pixels"
            f" wide, np.asarray({name})[..., np.newaxis]."
        )


def as_array(given: Any, name: str) -> np.ndarray:
    """Returns one array.

    Raises:
      DataError: It is several.
    """
    try:
        return np.asarray(given)
    except (ValueError, TypeError) as error:
        raise DataError(
            f"{name} must be one array; images of several sizes must be"
            " brought to one before."
        ) from error


def _kind(given: Any, images: np.ndarray) -> str:
    if images.dtype.kind in "USO" and images.ndim:
        kinds = {"U": "text", "S": "bytes", "O": "objects"}
        files = "" if images.dtype.kind == "O" else "; decode files before"
        return f"an array of {kinds[images.dtype.kind]}{files}"
    if isinstance(given, np.ndarray):
        return str(images.dtype)
    return "None" if given is None else f"of type {type(given).__name__}"


def _hint(images: np.ndarray, name: str) -> str:
    if images.ndim != 4:
        return ""
    if images.shape[3] == 4:
        return f"; of red, green, blue and alpha, take {name}[..., :3]"
    if images.shape[3] == 2:
        return f"; of grey and alpha, take {name}[..., :1]"
    if images.shape[1] in (1, 3):
        return f"; of channels first, take {name}.transpose(0, 2, 3, 1)"
    return ""


def _remedy(images: np.ndarray, name: str) -> str:
    if not images.size:
        return "It is empty, too."
    # NaN passes through, and fits no range.
    low, high = float(np.min(images)), float(np.max(images))
    if images.dtype.kind == "b":
        return f"({name} * 255).astype('uint8') brings its values there."
    span = f"Its values go from {low:.4g} to {high:.4g}"
    text = None
    if images.dtype.kind == "f":
        text = {
            low >= 0 and high > 1: f"{name}.round()",
            low >= 0 and high <= 1: f"({name} * 255).round()",
            -1 <= low < 0 and high <= 1: f"(({name} + 1) * 127.5).round()",
        }.get(True)
    elif low >= 0:
        text = name
    if text is None or high > 255:
        return f"{span}. Bring its values there."
    return f"{span}: {text}.astype('uint8') brings them there."
