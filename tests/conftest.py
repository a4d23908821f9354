"""What the tests share: one process with eight logical CPU devices."""

import numpy as np
import pytest

from tfnet.devices.runtime import prepare_process

prepare_process(verbose=False)

from benchmarks import kills  # noqa: E402
from tfnet import results  # noqa: E402
from tfnet.data import Examples  # noqa: E402
from tfnet.devices.start import start_devices  # noqa: E402

LOGICAL_DEVICES = 8


def devices_of(replicas):
    return start_devices(
        devices=replicas,
        logical_devices=LOGICAL_DEVICES,
        memory_growth=True,
        threads=1,
        batch_size=64,
    )


devices_of(1)


@pytest.fixture(autouse=True)
def no_report(request, monkeypatch):
    """A report takes a second: only tests that are about it draw one."""
    if "draws_report" not in request.keywords:
        monkeypatch.setattr(results, "draw_report", lambda run, place: [])


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder of small images in arrays, to train on in a second."""
    place = tmp_path_factory.mktemp("arrays") / "data"
    kills.make_data(place)
    return str(place)


@pytest.fixture
def strategy_of():
    """Returns the strategy over n logical CPU devices."""
    return lambda replicas: devices_of(replicas).strategy


@pytest.fixture
def make_examples():
    """Returns made-up examples whose classes can be told apart."""

    def make(count, *, size=32, classes=10, seed=0):
        random = np.random.default_rng(seed)
        labels = random.integers(0, classes, count).astype(np.int32)
        images = random.integers(0, 64, (count, size, size, 3))
        # Each class is brighter in a row of its own.
        for i, label in enumerate(labels):
            rows = slice(label * size // classes, (label + 1) * size // classes)
            images[i, rows] += 160
        return Examples(images.astype(np.uint8), labels)

    return make
