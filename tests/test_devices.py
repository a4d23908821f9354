import os

import pytest

import tfnet
from tfnet.devices.start import (
    free_gpu_memory,
    lanes_and_threads,
    start_devices,
    usable_cores,
)

SETTINGS = {
    "devices": None,
    "logical_devices": 8,
    "memory_growth": True,
    "threads": None,
    "batch_size": 64,
}


def test_devices_are_described_as_they_are():
    devices = start_devices(**{**SETTINGS, "devices": 3})
    assert devices.replicas == 3
    assert devices.kind == "CPU"
    assert [name.split(" ")[0] for name in devices.names] == [
        "CPU:0",
        "CPU:1",
        "CPU:2",
    ]
    assert f"{os.cpu_count()} cores" in devices.names[0]
    assert devices.threads >= 1
    assert devices.notes == ()


def test_there_is_one_strategy_for_the_same_devices():
    first = start_devices(**SETTINGS).strategy
    again = start_devices(**SETTINGS).strategy
    other = start_devices(**{**SETTINGS, "devices": 2}).strategy
    assert first is again
    assert first is not other


def test_the_strategy_outlives_a_reload_of_the_module():
    import importlib

    from tfnet.devices import start

    before = start.start_devices(**SETTINGS).strategy
    after = importlib.reload(start).start_devices(**SETTINGS).strategy
    assert before is after


def test_more_devices_than_there_are_is_refused_with_the_way_out():
    with pytest.raises(tfnet.ConfigError) as caught:
        start_devices(**{**SETTINGS, "devices": 9})
    assert "--devices (9) must be at most 8" in str(caught.value)
    assert "--logical_devices=9" in str(caught.value)


def test_another_split_in_the_same_process_is_refused():
    with pytest.raises(tfnet.ConfigError) as caught:
        start_devices(**{**SETTINGS, "logical_devices": 2})
    assert "--logical_devices (2)" in str(caught.value)
    assert "restart" in str(caught.value)


def test_other_threads_in_the_same_process_are_refused():
    with pytest.raises(tfnet.ConfigError) as caught:
        start_devices(**{**SETTINGS, "threads": 7})
    assert "--threads (7)" in str(caught.value)


def test_cores_are_counted_where_no_process_is_bound_to_some(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3, 5}, False)
    assert usable_cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 12)
    assert usable_cores() == 12
    assert start_devices(**SETTINGS).replicas == 8


@pytest.mark.parametrize(
    ("cores", "share", "splits", "want"),
    [
        # Too small for parts, and for more than one thread.
        (2, 2, True, (1, 1)),
        (2, 3, True, (1, 1)),
        (2, 4, True, (2, 1)),
        (2, 1000, True, (2, 1)),
        # No more parts than it has pairs of examples, than cores, than 8.
        (16, 6, True, (3, 1)),
        (6, 4000, True, (6, 1)),
        (16, 4000, True, (8, 2)),
        (16, 64, True, (8, 1)),
        # In one piece: threads by the size.
        (2, 31, False, (1, 1)),
        (2, 32, False, (1, 2)),
        (16, 1000, False, (1, 16)),
        # Less than a core for each replica.
        (0, 1000, True, (1, 1)),
        (0, 1000, False, (1, 1)),
        (1, 1000, True, (1, 1)),
    ],
)
def test_the_cores_of_a_replica(cores, share, splits, want):
    assert lanes_and_threads(cores, share, splits=splits) == want


def test_batches_smaller_than_the_replicas_are_told():
    devices = start_devices(**{**SETTINGS, "batch_size": 4})
    assert any("--batch_size (4)" in note for note in devices.notes)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("floatx", "float16"),
        ("dtype_policy", "mixed_float16"),
        ("image_data_format", "channels_first"),
    ],
)
def test_other_settings_of_keras_are_refused(setting, value, monkeypatch):
    import keras

    from tfnet.devices.runtime import prepare_process

    before = getattr(keras.config, setting)()
    change = getattr(keras.config, f"set_{setting}")
    change(value)
    try:
        with pytest.raises(tfnet.ConfigError, match=value):
            prepare_process(verbose=False)
    finally:
        change(before)
    prepare_process(verbose=False)


def test_gpu_memory_is_read_from_a_listing():
    # nine tenths of 1000, 500 and 20; the rest is left to others
    assert free_gpu_memory(3, "1000\n500\n20\n") == [900, 450, 18]


def test_gpu_memory_follows_the_visible_devices(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    assert free_gpu_memory(2, "1000\n500\n20\n") == [18, 900]


@pytest.mark.parametrize("listing", ["", "[N/A]\n", "1000\n"])
def test_a_listing_that_says_nothing_is_an_error(listing):
    with pytest.raises(tfnet.ConfigError, match="nvidia-smi"):
        free_gpu_memory(2, listing)
