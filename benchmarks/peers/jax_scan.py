"""JAX: jit over a scan of many steps, or over one step called from Python.

On a CPU, XLA runs convolutions inside a loop on a slow path (jax#12868), so
the form that calls one compiled step after the other is an option.
"""

import functools
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from benchmarks.peers import common

_BLOCK = 100


def main() -> None:
    """Trains, and prints what was measured."""
    parser = common.parser(__doc__)
    parser.add_argument("--per_step", action="store_true")
    arguments = parser.parse_args()
    work = common.read(arguments)
    weights = {name: jnp.asarray(one) for name, one in work.weights.items()}
    optimizer = optax.sgd(work.rate, momentum=common.MOMENTUM)
    state = weights, optimizer.init(weights)

    def step(state: Any, batch: Any) -> tuple[Any, Any]:
        weights, velocity = state
        loss, gradients = jax.value_and_grad(_loss)(weights, *batch)
        updates, velocity = optimizer.update(gradients, velocity)
        return (optax.apply_updates(weights, updates), velocity), loss

    @functools.partial(jax.jit, donate_argnums=0)
    def scan(state: Any, images: Any, labels: Any) -> tuple[Any, Any]:
        return lax.scan(step, state, (images, labels))

    one = jax.jit(step, donate_argnums=0)
    images, labels = work.scaled(), work.labels.astype(np.int32)
    size, seconds, loss = work.batch_size, [], 0.0
    for order in work.orders:
        begin = time.perf_counter()
        losses, counts = [], []
        if arguments.per_step:
            for start in range(0, len(order), size):
                rows = order[start : start + size]
                state, found = one(state, (images[rows], labels[rows]))
                losses.append(found)
                counts.append(len(rows))
        else:
            for start in range(0, len(order), size * _BLOCK):
                rows = order[start : start + size * _BLOCK]
                state, found = scan(
                    state,
                    images[rows].reshape(-1, size, 32, 32, 3),
                    labels[rows].reshape(-1, size),
                )
                losses.append(found.mean())
                counts.append(len(rows))
        loss = float(np.average(np.asarray(losses), weights=counts))
        seconds.append(time.perf_counter() - begin)
    common.show(len(labels), seconds, loss, "jax", "optax")


def _loss(weights: Any, images: Any, labels: Any) -> Any:
    x = images
    for name in ("conv1", "conv2"):
        x = lax.conv_general_dilated(
            x,
            weights[f"{name}.weight"],
            (1, 1),
            "VALID",
            dimension_numbers=("NHWC", "OIHW", "NHWC"),
        )
        x = jax.nn.relu(x + weights[f"{name}.bias"])
        x = lax.reduce_window(
            x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"
        )
    # As PyTorch flattens: channels first.
    x = x.transpose(0, 3, 1, 2).reshape(len(x), -1)
    for name in ("fc1", "fc2"):
        x = jax.nn.relu(
            x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]
        )
    logits = x @ weights["fc3.weight"].T + weights["fc3.bias"]
    return optax.softmax_cross_entropy_with_integer_labels(
        logits, labels
    ).mean()


if __name__ == "__main__":
    main()
