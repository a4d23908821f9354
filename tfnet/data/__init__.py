"""Data: from a name or a place to examples by index, in a computed order.

* `open_dataset` finds, reads and checks a `Dataset`.
* `order` is the permutation of an epoch; `feed` takes batches by it.
* `images` decodes, resizes and scales: the same rule for training and for
  the exported model; `scaling` says by which numbers.
"""

from tfnet.data.dataset import Dataset, Examples
from tfnet.data.find import open_dataset

__all__ = ["Dataset", "Examples", "open_dataset"]
