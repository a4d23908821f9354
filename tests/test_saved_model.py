"""The SavedModel, as a process without tfnet sees it."""

import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfnet
from tfnet import exports
from tfnet.data.scaling import SEED
from tfnet.models import build_model

CLASSES = tuple(f"class {number}" for number in range(10))

# Runs without tfnet on the path; writes what it finds to an .npz file.
SERVING = """
import sys
import numpy as np, tensorflow as tf
model = tf.saved_model.load(sys.argv[1])
data = np.load(sys.argv[2])
default = model.signatures["serving_default"]
found = {}
for name in ("same", "other"):
    for key, value in default(images=tf.constant(data[name])).items():
        found[f"{name}_{key}"] = value.numpy()
files = [open(path, "rb").read() for path in sys.argv[4:]]
outputs = model.signatures["encoded"](encoded=tf.constant(files))
for key, value in outputs.items():
    found[f"encoded_{key}"] = value.numpy()
assert not any(name.split(".")[0] == "tfnet" for name in sys.modules)
names = [key for key, value in found.items() if value.dtype == object]
found |= {key: found[key].astype("S") for key in names}
np.savez(sys.argv[3], **found)
"""


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A model, and what serving it gives."""
    place = tmp_path_factory.mktemp("export")
    model = build_model("net", (32, 32, 3), 10, seed=0)
    random = np.random.default_rng(0)
    images = {
        "same": random.integers(0, 256, (5, 32, 32, 3)).astype(np.uint8),
        "other": random.integers(0, 256, (2, 50, 21, 3)).astype(np.uint8),
    }
    export(place / "model", model, CLASSES, images["same"])
    np.savez(place / "in.npz", **images)
    png, jpeg = place / "a.png", place / "b.jpg"
    png.write_bytes(tf.io.encode_png(images["same"][0]).numpy())
    jpeg.write_bytes(tf.io.encode_jpeg(images["other"][1]).numpy())
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            SERVING,
            *map(str, (place / "model", place / "in.npz", place / "out.npz")),
            str(png),
            str(jpeg),
        ],
        capture_output=True,
        text=True,
        cwd=place,
        env={"PATH": "", "TF_ENABLE_ONEDNN_OPTS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return model, images, dict(np.load(place / "out.npz")), place


def export(path, model, classes, images):
    return exports.export(
        "saved_model",
        path,
        model,
        classes,
        scaling=SEED,
        image_size=images.shape[1],
        examples=images,
        labels=np.zeros(len(images), np.int32),
    )


def logits_of(model, images):
    scaled = ((images / 255 - 0.5) / 0.5).astype(np.float32)
    return model.predict(scaled, verbose=0)


def test_images_give_the_models_logits(exported):
    model, images, found, _ = exported
    want = logits_of(model, images["same"])
    np.testing.assert_allclose(found["same_logits"], want, atol=1e-6)
    odds = np.exp(want - want.max(axis=1, keepdims=True))
    np.testing.assert_allclose(
        found["same_probabilities"],
        odds / odds.sum(axis=1, keepdims=True),
        atol=1e-6,
    )
    ids = want.argmax(axis=1)
    assert found["same_class_id"].tolist() == ids.tolist()
    assert [name.decode() for name in found["same_class_name"]] == [
        CLASSES[i] for i in ids
    ]


def test_images_of_any_size_are_resized_by_the_rule_of_training(exported):
    model, images, found, _ = exported
    from tfnet.data.images import resize

    small = resize(images["other"], 32).numpy()
    want = logits_of(model, small)
    np.testing.assert_allclose(found["other_logits"], want, atol=1e-6)


def test_files_give_what_their_pixels_give(exported):
    model, images, found, place = exported
    from tfnet.data.images import decode, resize

    np.testing.assert_allclose(
        found["encoded_logits"][0],
        logits_of(model, images["same"][:1])[0],
        atol=1e-6,
    )
    jpeg = resize(decode((place / "b.jpg").read_bytes()), 32).numpy()
    np.testing.assert_allclose(
        found["encoded_logits"][1], logits_of(model, jpeg[None])[0], atol=1e-6
    )


def test_an_export_that_differs_is_not_kept(tmp_path, monkeypatch):
    model = build_model("net", (32, 32, 3), 10, seed=0)
    real = tf.saved_model.save

    def save_something_else(server, path, **keywords):
        kept = [variable.numpy() for variable in model.trainable_variables]
        for variable in model.trainable_variables:
            variable.assign(variable + 0.01)
        real(server, path, **keywords)
        for variable, value in zip(
            model.trainable_variables, kept, strict=True
        ):
            variable.assign(value)

    monkeypatch.setattr(tf.saved_model, "save", save_something_else)
    with pytest.raises(tfnet.RunError, match="was not kept"):
        images = np.zeros((2, 32, 32, 3), np.uint8)
        export(tmp_path / "model", model, CLASSES, images)
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_gives_nan_is_exported_as_it_is(tmp_path):
    model = keras.Sequential(
        [
            keras.Input((4, 4, 3)),
            keras.layers.Flatten(),
            keras.layers.Dense(2, bias_initializer="ones"),
        ]
    )
    kernel, bias = model.get_weights()
    model.set_weights([kernel, bias * np.nan])
    images = np.zeros((2, 4, 4, 3), np.uint8)
    export(tmp_path / "model", model, ("a", "b"), images)
    assert (tmp_path / "model" / "saved_model.pb").is_file()
