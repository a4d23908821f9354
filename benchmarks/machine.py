"""What this machine is, and how fast it multiplies matrices."""

import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

# Operations of one image of 32 x 32, from the shapes of the layers; a
# multiplication and an addition are two. Backward, each layer takes the
# forward's operations for its weights and once more for its input, but for
# the first, whose input is the image.
_FIRST = 2 * 28 * 28 * 6 * 5 * 5 * 3
_FORWARD = _FIRST + 2 * (
    10 * 10 * 16 * 5 * 5 * 6 + 400 * 120 + 120 * 84 + 84 * 10
)
OPERATIONS = 3 * _FORWARD - _FIRST
_SIZE = 1024
_TIMES = 20


def description() -> dict[str, str]:
    """Returns the facts a reader needs to judge a time."""
    model = platform.processor()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": model,
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def matrix_rate(threads: int) -> float:
    """Returns how many float32 operations a second products of matrices do.

    Measured in TensorFlow with oneDNN, 1024 x 1024, on so many threads, in a
    process of its own, since the threads are set once in one.
    """
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.machine", str(threads)],
        check=True, capture_output=True, text=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )  # fmt: skip
    return float(done.stdout.split()[-1])


def _measure(threads: int) -> float:
    from tfnet.devices.runtime import prepare_process

    prepare_process(verbose=False)
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    a = tf.random.stateless_uniform([_SIZE, _SIZE], [0, 0])
    seconds = []
    for _ in range(_TIMES):
        begin = time.perf_counter()
        tf.matmul(a, a).numpy()
        seconds.append(time.perf_counter() - begin)
    return 2 * _SIZE**3 / statistics.median(seconds)


if __name__ == "__main__":
    print(_measure(int(sys.argv[1])))
