"""From device settings to the strategy of this process.

There is always a strategy: one device is a MirroredStrategy over one device.
A process has one strategy object for the same devices, since a second one
would take the same keys for its collectives (tensorflow#62790).
"""

import dataclasses
import os
import platform
import subprocess
from typing import Any

import tensorflow as tf

from tfnet.devices.runtime import hold_back_noise
from tfnet.errors import ConfigError

# Measured on 2 cores. Parts smaller than the first cost more than they give,
# and what is smaller than the last is done sooner by one thread than by two.
_SMALLEST_PART = 2
# The program of a step grows with them.
_MOST_LANES = 8
_SMALL_BATCH = 32

# Kept when the module is reloaded: the strategies live as long as TensorFlow.
_strategies: dict[tuple[str, ...], tf.distribute.Strategy] = globals().get(
    "_strategies", {}
)
_determinism: dict[str, bool] = globals().get("_determinism", {"on": False})


@dataclasses.dataclass(frozen=True)
class Devices:
    """The devices of a run, as they really are.

    Attributes:
      strategy: The strategy over them.
      kind: `GPU` or `CPU`.
      names: For each replica, its device and what it is.
      memory: How memory is taken.
      threads: Threads that one operation may use on the CPU.
      lanes: In how many parts a replica works on its share at once, each on
        cores of its own.
      evaluation_lanes: The same for its share of what is evaluated.
      onednn: `on`, `off`, or `as TensorFlow chooses`: oneDNN's kernels.
      deterministic: Whether operations give the same bits every time.
      notes: Lines that a person should be told.
    """

    strategy: tf.distribute.Strategy
    kind: str
    names: tuple[str, ...]
    memory: str
    threads: int
    lanes: int
    evaluation_lanes: int
    onednn: str
    deterministic: bool
    notes: tuple[str, ...] = ()

    @property
    def replicas(self) -> int:
        """How many replicas train in sync."""
        return self.strategy.num_replicas_in_sync


def start_devices(
    *,
    devices: int | None,
    logical_devices: int,
    memory_growth: bool,
    threads: int | None,
    batch_size: int,
    splits: bool = False,
    deterministic: bool = False,
    verbose: bool = False,
) -> Devices:
    """Sets up the devices and returns the strategy over them.

    Args:
      devices: How many devices to use; None: all GPUs, or one CPU, or all
        their logical devices.
      logical_devices: How many logical devices to split each one into.
      memory_growth: Whether GPU memory is taken as it is needed.
      threads: Threads that one operation may use on the CPU; None: chosen by
        the batch size.
      batch_size: The global batch.
      splits: Whether a replica may work on its share in parts, where that is
        faster; only with threads unset.
      deterministic: Whether operations must give the same bits every time;
        TensorFlow can't undo that in a process.
      verbose: Whether to let TensorFlow's start-up messages through.

    Raises:
      ConfigError: There are fewer devices than asked for, or TensorFlow has
        already started in this process with other settings.
    """
    with hold_back_noise(verbose=verbose):
        gpus = tf.config.list_physical_devices("GPU")
    kind = "GPU" if gpus else "CPU"
    physical = gpus or tf.config.list_physical_devices("CPU")
    available = len(physical) * logical_devices
    if devices is not None and devices > available:
        raise ConfigError(_too_many(devices, kind, physical, logical_devices))
    replicas = devices or available
    lanes = evaluation_lanes = 1
    if threads is not None:
        _set_threads(threads, must=True)
    elif kind == "CPU":
        cores = usable_cores() // replicas
        lanes, threads = lanes_and_threads(
            cores, batch_size // replicas, splits=splits
        )
        # Evaluated is always as much as keeps all cores busy.
        evaluation_lanes = max(1, min(cores // threads, _MOST_LANES))
        _set_threads(threads, must=False)
    if deterministic and not _determinism["on"]:
        tf.config.experimental.enable_op_determinism()
        _determinism["on"] = True
    memory = _set_memory(kind, physical, logical_devices, memory_growth)
    with hold_back_noise(verbose=verbose):
        # Starts the runtime: nothing above can be changed from here on.
        logical = tf.config.list_logical_devices(kind)
    if len(logical) != available:
        raise ConfigError(
            f"--logical_devices ({logical_devices}) can't be had any more:"
            f" TensorFlow has started in this process with {len(logical)}"
            f" {kind} device(s); restart the process (or the notebook's"
            " kernel) first."
        )
    chosen = [device.name for device in logical[:replicas]]
    return Devices(
        strategy=_strategy(tuple(chosen), kind),
        kind=kind,
        names=tuple(
            _describe(name, physical[i // logical_devices])
            for i, name in enumerate(chosen)
        ),
        memory=memory,
        threads=tf.config.threading.get_intra_op_parallelism_threads()
        or os.cpu_count()
        or 1,
        lanes=lanes,
        evaluation_lanes=evaluation_lanes,
        onednn={"1": "on", "0": "off"}.get(
            os.environ.get("TF_ENABLE_ONEDNN_OPTS", ""),
            "as TensorFlow chooses",
        ),
        deterministic=_determinism["on"],
        notes=_notes(kind, len(chosen), batch_size),
    )


def usable_cores() -> int:
    """Returns how many cores this process may use."""
    # macOS can't bind a process to cores, and has no call to ask for them.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def lanes_and_threads(
    cores: int, share: int, *, splits: bool
) -> tuple[int, int]:
    """Chooses how a replica uses the cores of a CPU.

    By rule and not by trying: the sums of a step come in another order with
    another choice, so a run would not end in the same bits twice.

    Args:
      cores: How many cores there are for it; 0: less than one.
      share: Its examples of a batch.
      splits: Whether it may work in parts.

    Returns:
      How many parts, and how many threads for an operation in each.
    """
    lanes = 1
    if splits:
        lanes = max(1, min(cores, share // _SMALLEST_PART, _MOST_LANES))
    if share < _SMALL_BATCH * lanes:
        return lanes, 1
    return lanes, max(1, cores // lanes)


def start_without_strategy() -> None:
    """Starts TensorFlow for a program that trains nothing.

    GPU memory is taken as it is needed. Where TensorFlow runs already, it
    stays as it is.
    """
    with hold_back_noise(verbose=False):
        for gpu in tf.config.list_physical_devices("GPU"):
            _unless_started(tf.config.experimental.set_memory_growth, gpu, True)
        tf.config.list_logical_devices()


def _too_many(devices: int, kind: str, physical: list, split: int) -> str:
    there = f"{len(physical)} {kind}{'s' if len(physical) > 1 else ''}"
    if split > 1:
        there += f" split into {split} logical devices each"
    return (
        f"--devices ({devices}) must be at most {len(physical) * split}: there"
        f" is {there}; to split it further, use"
        f" --logical_devices={-(-devices // len(physical))}."
    )


def _set_threads(threads: int, *, must: bool) -> None:
    if threads == tf.config.threading.get_intra_op_parallelism_threads():
        return
    try:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
    except RuntimeError as error:
        # The runtime has started. A choice of ours gives way; a wish does not.
        if must:
            raise ConfigError(
                f"--threads ({threads}) can't be had any more: TensorFlow has"
                " started in this process; restart it first."
            ) from error


def _set_memory(kind: str, physical: list, split: int, growth: bool) -> str:
    """Sets growth or logical devices, and returns the memory mode in words."""
    if kind == "GPU" and split == 1:
        for gpu in physical:
            _unless_started(
                tf.config.experimental.set_memory_growth, gpu, growth
            )
            # What it is, if TensorFlow had started before.
            if bool(tf.config.experimental.get_memory_growth(gpu)) != growth:
                raise ConfigError(
                    f"--{'' if growth else 'no'}memory_growth can't be had any"
                    " more: TensorFlow has started in this process; restart it"
                    " first."
                )
        return "taken as needed" if growth else "all taken at the start"
    limits: list[int | None] = [None] * len(physical)
    if kind == "GPU":
        limits = [mib // split for mib in free_gpu_memory(len(physical))]
    if split > 1:
        for device, limit in zip(physical, limits, strict=True):
            configuration = tf.config.LogicalDeviceConfiguration(
                memory_limit=limit
            )
            _unless_started(
                tf.config.set_logical_device_configuration,
                device,
                [configuration] * split,
            )
    if kind == "GPU":
        # Growth and logical devices exclude each other in TensorFlow.
        return f"{limits[0]:,} MiB for each logical device, taken at the start"
    return "the host's"


def _unless_started(setter: Any, *arguments: Any) -> None:
    try:
        setter(*arguments)
    except RuntimeError:
        # Started by an earlier run: the caller compares what there is.
        return


def free_gpu_memory(count: int, listing: str | None = None) -> list[int]:
    """Returns the free memory of each GPU, in MiB, with a tenth left over.

    Args:
      count: How many GPUs TensorFlow sees.
      listing: What `nvidia-smi` prints; None: ask it.

    Raises:
      ConfigError: It can't be found out.
    """
    query = ["--query-gpu=memory.free", "--format=csv,noheader,nounits"]
    try:
        if listing is None:
            listing = subprocess.run(
                ["nvidia-smi", *query],
                capture_output=True,
                text=True,
                check=True,
                timeout=30,
            ).stdout
        free = [int(line) for line in listing.split()]
        if len(free) < count:
            raise ValueError(f"{len(free)} GPUs listed, {count} expected")
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise ConfigError(
            "--logical_devices needs the memory of each GPU from nvidia-smi,"
            f" which did not give it ({error}); leave it at 1 on this machine."
        ) from error
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if all(part.isdecimal() for part in visible.split(",")):
        free = [free[int(part)] for part in visible.split(",")]
    return [mib * 9 // 10 for mib in free[:count]]


def _strategy(names: tuple[str, ...], kind: str) -> tf.distribute.Strategy:
    if names not in _strategies:
        # On a CPU, adding up on one device is faster than the default, a ring
        # of collectives, and has no keys to collide. On GPUs the default is
        # NCCL.
        operations = None
        if kind == "CPU":
            operations = tf.distribute.ReductionToOneDevice()
        _strategies[names] = tf.distribute.MirroredStrategy(
            list(names), cross_device_ops=operations
        )
    return _strategies[names]


def _describe(name: str, physical: Any) -> str:
    short = name.removeprefix("/device:")
    if physical.device_type == "GPU":
        details = tf.config.experimental.get_device_details(physical)
        return f"{short} ({details.get('device_name', 'unknown GPU')})"
    return f"{short} ({_processor()}, {os.cpu_count()} cores)"


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        # Not Linux.
        pass
    return platform.processor() or platform.machine()


def _notes(kind: str, replicas: int, batch_size: int) -> tuple[str, ...]:
    notes = []
    if kind == "CPU" and "TF_ENABLE_ONEDNN_OPTS" not in os.environ:
        notes.append(
            "TensorFlow was imported before tfnet, and so uses oneDNN's kernels"
            " only where the processor has AVX512-VNNI; elsewhere training can"
            " take three times as long. Restart the process (or the notebook's"
            " kernel), and import tfnet first."
        )
    if kind == "CPU" and os.path.exists("/proc/driver/nvidia/version"):
        notes.append(
            "An NVIDIA driver is here, but TensorFlow sees no GPU: install"
            " 'tfnet[gpu]', and look at --verbosity=1."
        )
    if batch_size < replicas:
        notes.append(
            f"--batch_size ({batch_size}) is smaller than the {replicas}"
            " replicas: some of them get no example in any step."
        )
    return tuple(notes)
