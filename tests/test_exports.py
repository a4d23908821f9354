"""Exports: each format gives PyTorch's logits, or is not there.

The weights and logits of `golden/pytorch.npz` are PyTorch's own, of the seed's
network after 200 steps.
"""

import importlib.util
import json
import re
from pathlib import Path

import keras
import numpy as np
import onnx
import onnxruntime
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter
from safetensors.numpy import load_file

import tfnet
from tfnet import exports
from tfnet.data.sample import CLASS_NAMES, open_sample
from tfnet.data.scaling import SEED
from tfnet.exports import onnx_graph, state_dict
from tfnet.exports.card import write_card
from tfnet.models import build_model, net, pytorch
from tfnet.models.precision import computing_in

GOLDEN = Path(__file__).parent / "golden" / "pytorch.npz"
EXACT = [name for name, one in exports.FORMATS.items() if one.is_exact]


@pytest.fixture(scope="module")
def golden():
    with np.load(GOLDEN) as file:
        return dict(file)


@pytest.fixture(scope="module")
def model(golden):
    made = net.build((32, 32, 3), 10, seed=0)
    state = {
        name.removeprefix("final/"): array
        for name, array in golden.items()
        if name.startswith("final/")
    }
    pytorch.from_state_dict(made, state)
    return made


@pytest.fixture(scope="module")
def images(model):
    """40 test images, as PyTorch saw them; the model is right on 30."""
    shown, _ = next(open_sample().read("test", 28, 40))
    shown = np.pad(shown, ((0, 0), (2, 2), (2, 2), (0, 0)))
    labels = model.predict(scaled(shown), verbose=0).argmax(axis=1)
    labels[:10] += 1
    return shown, labels


def scaled(images):
    return ((images / 255 - 0.5) / 0.5).astype(np.float32)


@pytest.fixture(scope="module")
def exported(model, images, tmp_path_factory):
    """All formats in one directory, and how each compares."""
    place = tmp_path_factory.mktemp("exports")
    return place, {
        name: export(name, place / one.file, model, images)
        for name, one in exports.FORMATS.items()
    }


def export(name, path, model, images, **more):
    shown, labels = images
    return exports.export(
        name,
        path,
        model,
        CLASS_NAMES,
        scaling=SEED,
        image_size=shown.shape[1],
        examples=shown,
        labels=labels,
        **more,
    )


def saved_model(path, images):
    serve = tf.saved_model.load(str(path)).signatures["serving_default"]
    return serve(images=tf.constant(images))["logits"]


def keras_file(path, images):
    return keras.models.load_model(path)(images)


def tflite(path, images):
    return Interpreter(str(path)).get_signature_runner()(images=images)[
        "logits"
    ]


def onnx_file(path, images):
    session = onnxruntime.InferenceSession(path)
    return session.run(None, {"images": images})[0]


def pytorch_weights(path, images):
    state = load_file(path / "model.safetensors")
    x = tf.constant((images / 255 - 0.5) / 0.5, tf.float32)
    for name in ("conv1", "conv2"):
        kernel = state[f"{name}.weight"].transpose(2, 3, 1, 0)
        x = tf.nn.conv2d(x, kernel, 1, "VALID") + state[f"{name}.bias"]
        x = tf.nn.max_pool2d(tf.nn.relu(x), 2, 2, "VALID")
    x = tf.reshape(tf.transpose(x, [0, 3, 1, 2]), [len(images), -1])
    for name in ("fc1", "fc2", "fc3"):
        x = x @ state[f"{name}.weight"].T + state[f"{name}.bias"]
        x = tf.nn.relu(x) if name != "fc3" else x
    return x


LOADERS = {
    "saved_model": saved_model,
    "keras": keras_file,
    "tflite": tflite,
    "onnx": onnx_file,
    "pytorch": pytorch_weights,
}


@pytest.fixture
def record():
    return {
        "dataset": {
            "name": "fashion_mnist_10k",
            "origin": "the sample bundled with tfnet",
            "fingerprint": "f" * 64,
            "train": 8000,
            "test": 2000,
            "classes": list(CLASS_NAMES),
        },
        "parameters": 62006,
        "steps": 4000,
        "test_loss": 0.5633,
        "test_accuracy": 0.7904,
        "class_accuracy": dict.fromkeys(CLASS_NAMES, 0.5),
        "settings": {
            **{f.name: f.default for f in
               tfnet.Config.__dataclass_fields__.values()},
            "learning_rate": 0.02,
            "run_dir": "/home/someone/run",
        },
        "versions": {"tfnet": "0.1.0", "tensorflow": "2.21.0"},
    }  # fmt: skip


@pytest.mark.parametrize("name", EXACT)
def test_a_format_gives_pytorchs_logits(name, exported, golden, images):
    place, comparisons = exported
    shown = images[0][:16]
    found = LOADERS[name](place / exports.FORMATS[name].file, shown)
    want = golden["logits_after"]
    np.testing.assert_allclose(found, want, rtol=0, atol=1e-5)
    comparison = comparisons[name]
    assert comparison.max_difference < 1e-5
    assert comparison.accuracy == comparison.reference_accuracy == 0.75
    assert comparison.images == 40


def test_a_full_integer_model_is_small_and_takes_pixels(
    exported, golden, images
):
    place, comparisons = exported
    path = place / "model_int8.tflite"
    assert path.stat().st_size < (place / "model.tflite").stat().st_size / 3
    interpreter = Interpreter(str(path))
    types = {
        np.dtype(one["dtype"]).name for one in interpreter.get_tensor_details()
    }
    assert types <= {"uint8", "int8", "int32"}
    run = interpreter.get_signature_runner()
    given = run.get_input_details()["images"]
    assert given["dtype"] is np.uint8
    scale, zero_point = given["quantization"]
    assert (scale, zero_point) == (pytest.approx(1, rel=1e-6), 0)
    scale, zero_point = run.get_output_details()["logits"]["quantization"]
    found = run(images=images[0][:16])["logits"]
    assert found.dtype == np.int8
    logits = (found.astype(float) - zero_point) * scale
    want = golden["logits_after"]
    # 256 steps hold each layer: some hundredths of the range, over five.
    error = np.abs(logits - want).max() / np.ptp(want)
    assert 0 < error < 0.05
    assert comparisons["tflite_int8"].max_difference > 1e-4


def test_a_file_has_the_rights_that_others_have(exported):
    place, _ = exported
    (place / "plain").write_text("")
    rights = (place / "plain").stat().st_mode
    for path in place.rglob("*"):
        if path.is_file():
            assert path.stat().st_mode == rights, path


def test_onnx_takes_any_number_of_images(exported):
    place, _ = exported
    (given,) = onnx.load(place / "model.onnx").graph.input
    shape = given.type.tensor_type.shape.dim
    assert [one.dim_param or one.dim_value for one in shape] == [
        "batch", 32, 32, 3,
    ]  # fmt: skip
    assert len(onnx_graph.read(place / "model.onnx")) == 1


def test_the_card_says_what_was_trained_and_how_good_it_is(
    record, exported, tmp_path
):
    path = tmp_path / "README.md"
    record["dataset"]["classes"][0] = "a|b\nc"
    del record["class_accuracy"]["T-shirt/top"]
    record["class_accuracy"]["Trouser"] = None
    write_card(path, json.loads(json.dumps(record)), exported[1])
    text = path.read_text()
    assert text.startswith("# net, trained on fashion_mnist_10k\n")
    for line in (
        "| images | 8,000 to train and 2,000 to test |",
        f"| fingerprint | {'f' * 64} |",
        "| licence | MIT |",
        "| `--learning_rate` | 0.02 |",
        "| 0 | a\\|b\\nc |  |",
        "| 1 | Trouser |  |",
        "| 2 | Pullover | 50.0% |",
        "After 4,000 steps: test accuracy 79.0%, test loss 0.5633, on 2,000"
        " images.",
        "tfnet 0.1.0, tensorflow 2.21.0",
    ):
        assert f"\n{line}\n" in text
    assert "someone" not in text
    assert "--momentum" not in text
    for name, comparison in exported[1].items():
        assert f"### `{exports.FORMATS[name].file}`: " in text
        assert (
            f"right, the trained model {comparison.accuracy:.1%}" in text
            or (name == "tflite_int8")
        )


@pytest.mark.parametrize(
    "name", [one for one in exports.FORMATS if one != "pytorch"]
)
def test_the_examples_of_the_card_run(
    name, record, exported, model, tmp_path, monkeypatch, capsys
):
    place, comparisons = exported
    write_card(tmp_path / "README.md", record, comparisons)
    text = (tmp_path / "README.md").read_text()
    section = text.split(f"### `{exports.FORMATS[name].file}`")[1]
    code = re.search(r"```python\n(.*?)```", section, re.DOTALL)[1]
    assert 3 <= len([line for line in code.splitlines() if line]) <= 6
    monkeypatch.chdir(place)
    exec(compile(code, "README.md", "exec"), {})
    black = -np.ones((1, 32, 32, 3), np.float32)
    best = int(model.predict(black, verbose=0).argmax())
    printed = capsys.readouterr().out
    want = CLASS_NAMES[best] if name == "saved_model" else f"[{best}]"
    assert want in printed


def test_a_full_integer_model_loses_little(tmp_path):
    source = open_sample()
    shown, labels = next(source.read("train", 32, 512))
    model = net.build((32, 32, 3), 10, seed=0)
    model.compile(
        keras.optimizers.Adam(0.003),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    model.fit(scaled(shown), labels, batch_size=32, epochs=3, verbose=0)
    found = export(
        "tflite_int8",
        tmp_path / "a.tflite",
        model,
        next(source.read("test", 32, 200)),
        calibration=shown[:50],
    )
    assert found.reference_accuracy > 0.6
    # Of 200 images, 6 may fall on the other side of a border.
    assert abs(found.accuracy - found.reference_accuracy) <= 0.03


def test_any_model_is_exported_with_what_it_does_when_it_serves(
    images, tmp_path
):
    keras.utils.set_random_seed(0)
    shown = images[0][:8], images[1][:8]
    layers = keras.layers
    given = keras.Input((32, 32, 3))
    x = layers.Conv2D(4, 3, strides=2, padding="same")(given)
    x = layers.BatchNormalization()(x)
    x = layers.Dropout(0.5)(layers.Activation("silu")(x))
    x = layers.GlobalAveragePooling2D()(x)
    model = keras.Model(given, layers.Dense(10)(x))
    normalization = model.layers[2]
    normalization.moving_mean.assign([1, 2, 3, 4])
    normalization.moving_variance.assign([1, 2, 3, 4])
    for name, one in exports.FORMATS.items():
        if name != "pytorch":
            export(name, tmp_path / one.file, model, shown)
    with pytest.raises(tfnet.ConfigError, match="is for --model=net"):
        export("pytorch", tmp_path / "pytorch", model, shown)
    assert not (tmp_path / "pytorch").exists()


@pytest.mark.parametrize("name", ["onnx", "pytorch"])  # a file, a directory
def test_an_export_that_differs_is_not_kept(
    name, model, images, tmp_path, monkeypatch
):
    path = tmp_path / exports.FORMATS[name].file
    module = exports.FORMATS[name].module()
    real = module.read

    def read_other(place):
        (predict,) = list(real(place).values())[:1]
        return {"images": lambda shown: np.asarray(predict(shown)) + 1e-3}

    monkeypatch.setattr(module, "read", read_other)
    with pytest.raises(tfnet.RunError, match=r"differ by 0.001, where 0.000"):
        export(name, path, model, (images[0][:4], images[1][:4]))
    assert list(tmp_path.iterdir()) == []


def test_an_older_export_stays_where_a_new_one_fails(
    model, images, tmp_path, monkeypatch
):
    path = tmp_path / "model.onnx"
    path.write_text("old")
    monkeypatch.setattr(onnx.checker, "check_model", lambda *a, **k: 1 / 0)
    with pytest.raises(tfnet.RunError) as caught:
        export("onnx", path, model, images)
    assert str(caught.value) == (
        "this model can't be exported as onnx: ZeroDivisionError: division by"
        " zero; nothing was kept of it."
    )
    assert path.read_text() == "old"
    monkeypatch.undo()
    export("onnx", path, model, images)
    onnx.checker.check_model(path)
    assert [one.name for one in tmp_path.iterdir()] == ["model.onnx"]


@pytest.mark.parametrize("name", ["saved_model", "pytorch"])
def test_what_a_person_put_into_an_export_is_not_lost(
    name, model, images, tmp_path
):
    path = tmp_path / name
    export(name, path, model, images)
    export(name, path, model, images)
    (path / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match=r"it holds notes\.txt"):
        export(name, path, model, images)
    assert (path / "notes.txt").read_text() == "mine"


def test_a_layer_that_a_format_lacks_is_named(images, tmp_path, capfd):
    class Odd(keras.layers.Layer):
        def call(self, x):
            return (
                x + keras.ops.slogdet(x[:, :2, :2, 0])[1][:, None, None, None]
            )

    model = keras.Sequential(
        [
            keras.Input((32, 32, 3)),
            Odd(),
            keras.layers.Flatten(),
            keras.layers.Dense(10),
        ]
    )
    capfd.readouterr()
    with pytest.raises(
        tfnet.RunError, match=r"as TFLite: it has no LogMatrixDeterminant; no"
    ):
        export("tflite", tmp_path / "a.tflite", model, images)
    assert capfd.readouterr() == ("", "")
    with pytest.raises(
        tfnet.RunError, match="as onnx: .*No Op registered for .*Determinant"
    ):
        export("onnx", tmp_path / "a.onnx", model, images)
    # Keras can't load what no process but this one knows of.
    with pytest.raises(tfnet.RunError, match="as keras: ") as caught:
        export("keras", tmp_path / "a.keras", model, images)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("precision", ["bfloat16", "float16", "float64"])
def test_what_a_model_computes_in_is_kept_or_refused(
    precision, images, tmp_path
):
    shown = images[0][:4], images[1][:4]
    with computing_in(precision):
        model = build_model("net", (32, 32, 3), 10, seed=0)
        for name in ("keras", "pytorch"):
            path = tmp_path / exports.FORMATS[name].file
            export(name, path, model, shown)
        refused = ["tflite", "tflite_int8"]
        if precision == "float16":
            export("onnx", tmp_path / "a.onnx", model, shown)
        else:
            refused.append("onnx")
        for name in refused:
            with pytest.raises(
                tfnet.ConfigError, match=f"computes in {precision}. Build it"
            ):
                export(name, tmp_path / "refused", model, shown)
    found = load_file(tmp_path / "pytorch" / "model.safetensors")
    for name, array in pytorch.to_state_dict(model).items():
        assert found[name].tobytes() == array.tobytes()
        assert found[name].dtype == array.dtype


def test_a_missing_package_is_named_with_the_way_to_get_it(
    model, images, tmp_path, monkeypatch
):
    real = importlib.util.find_spec
    missing = {"ai_edge_litert", "onnxruntime", "tf2onnx"}
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name: None if name in missing else real(name),
    )
    with pytest.raises(tfnet.ConfigError) as caught:
        export("onnx", tmp_path / "a.onnx", model, images)
    assert str(caught.value) == (
        "the format onnx needs onnxruntime, tf2onnx, which is not installed"
        " here; use pip install onnxruntime tf2onnx, or leave the format out."
    )
    with pytest.raises(tfnet.ConfigError, match="pip install ai-edge-litert,"):
        export("tflite", tmp_path / "a.tflite", model, images)
    with pytest.raises(tfnet.ConfigError, match=r"\(h5\) must be one of saved"):
        export("h5", tmp_path / "a.h5", model, images)
    assert list(tmp_path.iterdir()) == []


def test_the_class_for_pytorch_has_the_shapes_of_the_weights(tmp_path, images):
    shown = images[0][:2, :24, :24], images[1][:2]
    model = net.build((24, 24, 3), 4, seed=0)
    exports.export(
        "pytorch", tmp_path / "p", model, ("a", "b", "c", "d"),
        scaling=SEED, image_size=24, examples=shown[0], labels=shown[1],
    )  # fmt: skip
    text = (tmp_path / "p" / "net.py").read_text()
    compile(text, "net.py", "exec")
    weights = load_file(tmp_path / "p" / "model.safetensors")
    flat, classes = weights["fc1.weight"].shape[1], 4
    assert flat == 16 * 3 * 3
    assert f"nn.Linear({flat}, 120)" in text
    assert f"nn.Linear(84, {classes})" in text
    assert "[batch, 3, 24, 24]" in text


@pytest.mark.parametrize(
    ("name", "dataset", "licence"),
    [
        ("cifar10", None, "its authors state none"),
        ("cifar10", "cifar10", "its authors state none"),
        ("cifar10", "./cifar10", "not known to tfnet"),
        ("flowers", "flowers", "not known to tfnet"),
    ],
)
def test_the_licence_is_what_is_known(name, dataset, licence, record, tmp_path):
    record["dataset"]["name"] = name
    record["settings"]["dataset"] = dataset
    del record["test_accuracy"], record["class_accuracy"], record["steps"]
    write_card(tmp_path / "README.md", record, {})
    text = (tmp_path / "README.md").read_text()
    assert f"| licence | {licence} |" in text
    assert "It was not evaluated." in text


def test_a_pickled_copy_that_differs_is_refused(
    model, images, tmp_path, monkeypatch
):
    """Where PyTorch is installed, model.pt must hold what the other does."""

    def pickle_other(path, state):
        path.write_bytes((GOLDEN.parent / "weights.pt").read_bytes())

    monkeypatch.setattr(state_dict, "has_pytorch", lambda: True)
    monkeypatch.setattr(state_dict, "_pickle", pickle_other)
    with pytest.raises(tfnet.RunError, match="model.pt, read back, holds othe"):
        export("pytorch", tmp_path / "p", model, images)
    assert list(tmp_path.iterdir()) == []
