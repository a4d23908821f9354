"""That nothing in a step would leave the GPU, as far as a CPU can tell.

An operation without a kernel for a GPU and its types is placed on the CPU in
silence, and what it takes and gives is copied there and back in every step.
"""

import collections

import keras
import numpy as np
import pytest
import tensorflow as tf
from harness import nodes_of, sgd
from tensorflow.python.framework import kernels

from tfnet import training
from tfnet.data.augment import Augmentation
from tfnet.data.scaling import SEED
from tfnet.models import build_model

SHAPE = (32, 32, 3)


def kernels_for_gpus(name):
    return [
        kernel
        for kernel in kernels.get_registered_kernels_for_op(name).kernel
        if kernel.device_type in ("GPU", "DEFAULT")
    ]


def takes(kernel, node):
    """Whether a kernel is for the types that a node has."""
    for constraint in kernel.constraint:
        value = node.attr[constraint.name]
        types = value.list.type or [value.type]
        if not set(types) <= set(constraint.allowed_values.list.type):
            return False
    return True


def without_gpu_kernel(function):
    """Counts the operations of a traced function that no GPU has."""
    nodes = nodes_of(function)
    assert len(nodes) > 100
    return collections.Counter(
        node.op
        for node in nodes
        if not any(takes(kernel, node) for kernel in kernels_for_gpus(node.op))
    )


def model_in(strategy):
    with strategy.scope():
        model = build_model("net", SHAPE, 10, seed=0)
        training.synchronise(model, replicas=strategy.num_replicas_in_sync)
    return model


@pytest.fixture(autouse=True)
def _kernels():
    if not kernels_for_gpus("Conv2DBackpropFilter"):
        pytest.skip("this TensorFlow is built without kernels for GPUs")


def test_the_check_sees_what_no_gpu_has():
    @tf.function
    def gathers_bytes(images):
        return [tf.gather(images, [i]) for i in range(100)]

    function = gathers_bytes.get_concrete_function(
        tf.TensorSpec([None, *SHAPE], tf.uint8)
    )
    assert without_gpu_kernel(function) == {"GatherV2": 100}


@pytest.mark.parametrize("is_padded", [False, True])
@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
def test_a_step_stays_on_the_gpu(strategy_of, precision, held, is_padded):
    strategy = strategy_of(1)
    keras.config.set_dtype_policy(precision)
    try:
        with strategy.scope():
            state = training.TrainState(model_in(strategy), sgd(0.1), ema=0.9)
        function = training.TrainFunction(
            strategy,
            state,
            SHAPE,
            training.StepRule(
                seed=0,
                objective=training.Objective(
                    label_smoothing=0.1, class_weights=(1.0,) * 10
                ),
                augmentation=Augmentation(
                    flip=True, crop=2, color=0.1, cutout=4
                ),
                clipping=training.Clipping(norm=1.0),
                mixup=0.2,
            ),
            accumulates=True,
            held=np.zeros((9, *SHAPE), np.uint8) if held else None,
        ).trace(is_padded)
    finally:
        keras.config.set_dtype_policy("float32")
    assert without_gpu_kernel(function) == {}


def test_an_evaluation_stays_on_the_gpu(strategy_of):
    strategy = strategy_of(1)
    function = training.create_evaluate_function(
        strategy, model_in(strategy), 10, SEED
    ).get_concrete_function(
        (tf.TensorSpec([None, *SHAPE], tf.uint8),),
        (tf.TensorSpec([None], tf.int32),),
    )
    assert without_gpu_kernel(function) == {}
