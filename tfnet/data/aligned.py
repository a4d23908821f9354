"""Arrays in memory that TensorFlow can take as it is."""

import math

import numpy as np

# What TensorFlow asks of its own buffers (tsl::Allocator::kAllocatorAlignment).
ALIGNMENT = 64


def empty_aligned(
    shape: tuple[int, ...], dtype: np.typing.DTypeLike
) -> np.ndarray:
    """Returns an array like np.empty's, at an address TensorFlow can use.

    NumPy's own lie 16 bytes behind such an address, and TensorFlow copies
    what lies elsewhere.
    """
    dtype = np.dtype(dtype)
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


def is_aligned(array: np.ndarray) -> bool:
    """Says whether TensorFlow can take an array as it is."""
    return (
        array.flags.c_contiguous
        and array.flags.writeable
        and array.ctypes.data % ALIGNMENT == 0
    )
