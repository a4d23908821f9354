"""Images in an .npy file larger than memory, read as they are asked for.

By plain reads, not through a memory map: a map counts every page it has ever
touched, and the pages around it, as this process's memory, so that a run on a
large set would look (and be limited) as if it held all of it.
"""

import copy
import os
import weakref
from pathlib import Path
from typing import Self

import numpy as np

from tfnet.data.aligned import empty_aligned
from tfnet.errors import DataError


class ImageFile:
    """Images in a file.

    Attributes:
      path: The file.
      shape: Images, height, width and channels. Grey images in the file, [n,
        height, width], are given with their value in all three channels.
      dtype: uint8, or what else the file holds.
    """

    def __init__(self, path: Path) -> None:
        """Opens an .npy file.

        Args:
          path: The file.

        Raises:
          OSError: It can't be opened.
          ValueError: It is no .npy file, or shorter than its header says.
        """
        # Not np.load: it takes zip archives and pickles, too.
        mapped = np.lib.format.open_memmap(path, mode="r")
        if not mapped.flags.c_contiguous:
            raise DataError(
                f"{path} is in Fortran order; save it anew with"
                " np.ascontiguousarray."
            )
        self.path = path
        self.dtype = mapped.dtype
        self._stored = mapped.shape[1:]
        self._is_grey = mapped.ndim == 3
        self.shape = (*mapped.shape, 3) if self._is_grey else mapped.shape
        self._offset = mapped.offset
        self._row = mapped.dtype.itemsize * int(np.prod(self._stored))
        # Held open: it stays the file that was checked, whatever takes its
        # name while a run goes on.
        self._handle = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._handle)
        if hasattr(os, "posix_fadvise"):
            # Batches are drawn from all over: reading ahead is in vain.
            os.posix_fadvise(self._handle, 0, 0, os.POSIX_FADV_RANDOM)
        # Which images of the file these are; None: all.
        self._rows: np.ndarray | None = None
        self._whole: ImageFile | None = None

    def only(self, rows: np.ndarray) -> Self:
        """Returns some of the images, without reading any.

        Args:
          rows: Integers [n], each from 0 to the number of images - 1.
        """
        part = copy.copy(self)
        part.shape = (len(rows), *self.shape[1:])
        part._rows = rows if self._rows is None else self._rows[rows]
        # The file is closed with the object that opened it.
        part._whole = self
        return part

    def take(self, indices: np.ndarray) -> np.ndarray:
        """Reads images.

        Args:
          indices: Integers [n], each from 0 to the number of images - 1.

        Returns:
          uint8 [n, height, width, 3].

        Raises:
          DataError: The file is shorter than it was, or can't be read.
        """
        if self._rows is not None:
            indices = self._rows[indices]
        count = len(indices)
        images = empty_aligned((count, *self._stored), self.dtype)
        buffer = images.reshape(-1).view(np.uint8).data
        # One read for images that lie side by side, as in an evaluation.
        breaks = np.flatnonzero(np.diff(indices.astype(np.int64)) != 1) + 1
        starts = np.concatenate([[0], breaks]) if count else breaks
        offsets = self._offset + indices[starts].astype(np.int64) * self._row
        edges = [*(starts * self._row).tolist(), len(buffer)]
        spans = list(zip(edges[:-1], edges[1:], offsets.tolist(), strict=True))
        # Asked for all at once, a disk brings them five times as fast as one
        # after the other; where they are in memory, it costs next to nothing.
        if hasattr(os, "posix_fadvise"):
            for start, stop, offset in spans:
                os.posix_fadvise(
                    self._handle, offset, stop - start, os.POSIX_FADV_WILLNEED
                )
        for start, stop, offset in spans:
            self._read(buffer[start:stop], offset)
        if self._is_grey:
            return np.repeat(images[..., np.newaxis], 3, axis=-1)
        return images

    def _read(self, buffer: memoryview, offset: int) -> None:
        while buffer:
            try:
                done = os.preadv(self._handle, [buffer], offset)
            except OSError as error:
                raise DataError(
                    f"{self.path} can't be read: {error.strerror}."
                ) from error
            if done == 0:
                raise DataError(
                    f"{self.path} was cut short while in use; put it back as it"
                    " was."
                )
            buffer, offset = buffer[done:], offset + done
