import dataclasses
import math

import pytest

import tfnet
from tfnet import Config, command_line
from tfnet.config import OPTIMIZERS
from tfnet.settings import rule_text

SEED = {
    "model": "net",
    "epochs": 2,
    "batch_size": 4,
    "optimizer": "sgd",
    "learning_rate": 0.001,
    "momentum": 0.9,
    "image_size": 32,
    "log_every": 2000,
    "seed": 0,
}

NUMBERS = [
    field.name
    for field in dataclasses.fields(Config)
    if field.metadata["rule"]["kind"] in (int, float)
]


def error_of(**settings):
    with pytest.raises(tfnet.ConfigError) as caught:
        Config(**settings)
    return str(caught.value)


def flag_error(*arguments):
    with pytest.raises(tfnet.ConfigError) as caught:
        Config.from_flags(arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_defaults_are_the_seeds():
    config = Config()
    assert {name: getattr(config, name) for name in SEED} == SEED


def test_every_default_keeps_its_own_rule():
    for field in dataclasses.fields(Config):
        if field.default is not None:
            assert Config(**{field.name: field.default}) == Config()


def test_every_example_in_a_rule_is_a_value_that_works():
    for field in dataclasses.fields(Config):
        Config(**{field.name: field.metadata["rule"]["example"]})


def test_config_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().epochs = 3


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [-1, math.nan, math.inf, "text", True, [1]])
def test_a_number_out_of_bounds_or_no_number_is_refused(name, value):
    message = error_of(**{name: value})
    assert message.startswith(f"--{name} (")
    assert f"must be {rule_text(Config.__dataclass_fields__[name])}" in message
    assert f"for example --{name}=" in message


@pytest.mark.parametrize(
    "name", ["epochs", "batch_size", "learning_rate", "log_every", "steps"]
)
def test_zero_is_refused_where_nothing_would_happen(name):
    assert error_of(**{name: 0}).startswith(f"--{name} (0")


def test_bounds_are_as_the_rule_says():
    assert Config(momentum=0).momentum == 0
    assert "below 1" in error_of(momentum=1)
    assert Config(eval_every=0).eval_every == 0
    assert Config(seed=2**32 - 1).seed == 2**32 - 1
    assert "at most 4,294,967,295" in error_of(seed=2**32)


def test_a_whole_number_is_fine_where_any_number_is():
    rate = Config(learning_rate=1).learning_rate
    assert rate == 1.0
    assert isinstance(rate, float)


@pytest.mark.parametrize("value", ["", " x", "x ", "a\nb", 3])
def test_text_that_a_flagfile_cannot_hold_is_refused(value):
    message = error_of(dataset=value)
    assert message.startswith("--dataset (")
    assert "\n" not in message


@pytest.mark.parametrize("model", ["nett", "a.b", "a:b:c", ":f", "m:"])
def test_a_model_is_net_or_a_function_in_a_module(model):
    assert f"--model ({model})" in error_of(model=model)


def test_momentum_is_refused_where_it_would_do_nothing():
    assert "--optimizer=sgd" in error_of(optimizer="adam", momentum=0.5)
    assert Config(optimizer="adam").momentum == 0.9


@pytest.mark.parametrize("name", ["sdg", "keras.optimizers.SGD", "a:b:c", ":f"])
def test_an_unknown_optimizer_names_the_known_ones(name):
    message = error_of(optimizer=name)
    assert f"--optimizer ({name})" in message
    assert "sgd, adadelta, adafactor, adagrad, adam" in message
    assert "package.module:function" in message


@pytest.mark.parametrize("optimizer", [*OPTIMIZERS, "my_module:make"])
def test_a_known_optimizer_or_a_function_is_taken(optimizer):
    assert Config(optimizer=optimizer).optimizer == optimizer


@pytest.mark.parametrize(
    ("settings", "texts"),
    [
        ({"decay": 0.5}, ["--decay (0.5)", "--schedule=step"]),
        (
            {"schedule": "cosine", "decay_every": 2},
            ["--decay_every (2)", "--schedule=step"],
        ),
        (
            {"schedule": "one_cycle", "warmup_steps": 5},
            ["--warmup_steps (5)", "--schedule=one_cycle"],
        ),
        (
            {"optimizer": "ftrl", "weight_decay": 0.1},
            ["--weight_decay (0.1)", "--optimizer=ftrl"],
        ),
        (
            {"optimizer": "my_module:make", "weight_decay": 0.1},
            ["--weight_decay (0.1)", "my_module:make"],
        ),
    ],
)
def test_a_setting_that_would_do_nothing_is_refused(settings, texts):
    message = error_of(**settings)
    assert all(text in message for text in texts)


@pytest.mark.parametrize(
    "text", ["a", "1,,2", "1,-2", "nan,1", "inf", "0,0", ",", "1;2"]
)
def test_class_weights_that_are_none(text):
    message = error_of(class_weights=text)
    assert f"--class_weights ({text}) must be balanced, or numbers" in message


@pytest.mark.parametrize("text", ["balanced", "1,2.5,0", "1e-3, 2"])
def test_class_weights_that_are_some(text):
    assert Config(class_weights=text).class_weights == text


def test_flags_say_the_same_as_arguments():
    config = Config.from_flags(
        ["--epochs=3", "--noexport", "--learning_rate=0.5", "--run_dir=a b"]
    )
    assert config == Config(
        epochs=3, export=False, learning_rate=0.5, run_dir="a b"
    )


def test_later_flags_win():
    assert Config.from_flags(["--epochs=3", "--epochs=4"]).epochs == 4


@pytest.mark.parametrize(
    ("arguments", "texts"),
    [
        (["--epochs=0"], ["--epochs (0)", "at least 1", "--epochs=2"]),
        (["--epochs=two"], ["--epochs (two)", "whole number"]),
        (["--epochs=1e3"], ["--epochs (1e3)"]),
        (["--epochs=a: b"], ["--epochs (a: b)"]),
        (["--epochs="], ["--epochs ()"]),
        (["--epochs"], ["--epochs"]),
        (["--learning_rate=nan"], ["--learning_rate (nan)", "finite"]),
        (["--export=perhaps"], ["--export (perhaps)", "true or false"]),
        (["--epoch=1"], ["--epoch is not a flag", "did you mean --epochs?"]),
        (["--nodryrun"], ["--nodryrun is not a flag", "--dry_run"]),
        (["--zzzzzzz=1"], ["--zzzzzzz is not a flag", "--help"]),
        (["epochs=1"], ["'epochs=1' is not a flag"]),
        (["--noexport=1"], ["--noexport", "--export=false"]),
        (["--flagfile="], ["--flagfile must name a file"]),
        (["--crop=32"], ["--crop (32)", "--image_size (32)"]),
        (["--batch_size=9999999999"], ["at most 2,147,483,647"]),
        (
            ["--batch_size=65536", "--accumulate_steps=65536"],
            ["--accumulate_steps (65536)", "at most 2,147,483,647"],
        ),
        (["--learning_rate=1e-320"], ["at least 1e-30"]),
        (["--clip_norm=1e308"], ["--clip_norm (1e+308)", "at most 1e+30"]),
        (["--class_weights=1e308,1"], ["from 0 to 1e30"]),
        (["--ema=0.99999999999"], ["--ema (0.99999999999)", "at most"]),
        (["--flagfile=no/such"], ["no/such", "seed.flags", "smoke.flags"]),
        (["--flagfile"], ["--flagfile"]),
    ],
)
def test_bad_flags_are_one_line(arguments, texts):
    message = flag_error(*arguments)
    for text in texts:
        assert text in message


def test_a_flagfile_that_is_no_text_is_named(tmp_path):
    path = tmp_path / "binary.flags"
    path.write_bytes(b"\xff\xfe\x00")
    assert "--flagfile" in flag_error(f"--flagfile={path}")


def test_an_error_in_a_flagfile_is_told_as_on_the_command_line(tmp_path):
    path = tmp_path / "my.flags"
    path.write_text("# mine\n--epochs=0\n")
    assert flag_error(f"--flagfile={path}") == error_of(epochs=0)


@pytest.mark.parametrize(
    "path",
    sorted(command_line.recipes_directory().glob("*.flags")),
    ids=lambda path: path.name,
)
def test_every_recipe_is_read_by_the_real_parser(path, tmp_path, monkeypatch):
    config = Config.from_flags([f"--flagfile={path}"])
    lines = path.read_text().splitlines()
    assert lines[0].startswith("# ")
    for line in lines:
        if line.startswith("--"):
            name, _, value = line[2:].partition("=")
            field = Config.__dataclass_fields__[name]
            assert str(getattr(config, name)) == value
            if name != "dataset":
                assert getattr(config, name) != field.default
    # Found by its name from anywhere, as the command in its first lines says.
    monkeypatch.chdir(tmp_path)
    assert Config.from_flags([f"--flagfile=flags/{path.name}"]) == config
    assert f"--flagfile=flags/{path.name}" in path.read_text()


def test_there_are_recipes():
    names = {path.name for path in command_line.recipes_directory().iterdir()}
    assert {"seed.flags", "smoke.flags", "cifar10_gpu.flags"} <= names


def test_a_file_of_the_users_own_comes_before_a_recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "seed.flags").write_text("--epochs=7\n")
    assert Config.from_flags(["--flagfile=seed.flags"]).epochs == 7
    assert Config.from_flags(["--flagfile", "seed.flags"]).epochs == 7
    assert Config.from_flags(["-flagfile=seed.flags"]).epochs == 7


def test_a_flagfile_repeats_every_setting(tmp_path):
    config = Config(
        dataset="~/my images, sorted #2",
        learning_rate=1e-05,
        momentum=0.1 + 0.2,
        export=False,
        dry_run=True,
        steps=7,
    )
    path = tmp_path / "config.flags"
    path.write_text(command_line.to_flagfile(config, "a comment"))
    assert Config.from_flags([f"--flagfile={path}"]) == config


def test_parsing_leaves_the_global_flags_and_argv_alone(monkeypatch):
    from absl import flags

    before = set(flags.FLAGS)
    monkeypatch.setattr("sys.argv", ["notebook", "-f", "kernel.json"])
    Config.from_flags(["--epochs=1"])
    assert set(flags.FLAGS) == before
    assert not flags.FLAGS.is_parsed() or "epochs" not in flags.FLAGS


def test_a_profile_must_end_within_the_steps():
    Config(profile="15-20", steps=20)
    Config(profile="25-30")
    with pytest.raises(
        tfnet.ConfigError,
        match=r"^--profile \(25-30\) must end within the run's 20 steps; for"
        r" example --profile=20-20\.$",
    ):
        Config(profile="25-30", steps=20)
