"""The configuration: what is read, what overrides it, and the message for each kind of mistake."""

import os
import random

import pytest

from twinfold.model import MLP
from twinfold.model._learned.base import learned_parts
from twinfold.train._loss import Loss
from twinfold.workspace._config import (
    RENAMED,
    Config,
    DataConfig,
    FitConfig,
    LossConfig,
    RunConfig,
    parse_config,
    read_config,
    setting_names,
    stored_arguments,
)
from twinfold.workspace._new import new_project
from twinfold.workspace._system import load_system
from twinfold.workspace._workspace import open_workspace

TEXT = """
[data]
files = "data/*.csv"
outputs = ["x", "y"]
columns = {x = "pos x [m]", "y" = "ÿ"}
scale = {x = 1e-3}
missing = [-999, "n/a"]
test = ["run 7"]

[fit]
seeds = 2
adam_epochs = 100
learning_rate = 1

[loss]
huber = 0.5

[run]
folder = "runs/a \\"b\\" \\u007f"
"""


def test_values_get_their_types():
    config = parse_config(TEXT)
    assert config.data.files == ("data/*.csv",)
    assert config.data.outputs == ("x", "y")
    assert config.data.columns == {"x": "pos x [m]", "y": "ÿ"}
    assert config.data.missing == (-999.0, "n/a")
    assert config.data.test == ("run 7",)
    assert config.fit.learning_rate == 1.0
    assert config.loss.build() == Loss(huber=0.5)
    stages = config.fit.methods() or ()
    assert [(stage.epochs, stage.name) for stage in stages] == [(100, "Adam 1")]
    assert FitConfig().methods() is None


def test_what_is_written_is_read_back():
    config = parse_config(TEXT)
    assert parse_config(config.toml()) == config


def test_the_same_names_in_python():
    python = Config(
        data=DataConfig(
            files=("data/*.csv",),
            outputs=("x", "y"),
            columns={"x": "pos x [m]", "y": "ÿ"},
            scale={"x": 1e-3},
            missing=(-999.0, "n/a"),
            test=("run 7",),
        ),
        fit=FitConfig(seeds=2, adam_epochs=100, learning_rate=1.0),
        loss=LossConfig(huber=0.5),
        run=RunConfig(folder='runs/a "b" \x7f'),
    )
    assert python == parse_config(TEXT)


def test_the_default_loss_is_that_of_the_library():
    assert LossConfig().build() == Loss()


def test_one_string_is_a_list_of_one():
    config = parse_config(TEXT, ["data.missing=none", "data.valid=run 3", "data.x0=v"])
    assert (config.data.missing, config.data.valid, config.data.x0) == (("none",), ("run 3",), ("v",))


OLD = """
[fit]
adam = 5
levenberg = 6
rate = 1e-2
train = "unknown"
recompute = true

[loss]
soft = 0.5

[data]
gap = 60
pieces = 5
"""


@pytest.mark.parametrize(("section", "old"), list(RENAMED))
def test_an_old_name_is_refused_with_the_new_one(section, old):
    (line,) = [line for line in OLD.splitlines() if line.startswith(f"{old} =")]
    new = RENAMED[section, old]
    for text, overrides in ((f"{TEXT}\n[export]\n", [f"{section}.{line}"]), (f"[{section}]\n{line}\n", [])):
        with pytest.raises(ValueError, match=rf"{section}\.{old} is now called {section}\.{new}") as refusal:
            parse_config(text, overrides)
        assert "\n" not in str(refusal.value)
        assert ('"unknown" is now "parameters"' in str(refusal.value)) == (old == "train")


def test_a_stored_configuration_of_an_earlier_version_is_converted():
    config = parse_config(OLD + 'files = ["a.csv"]\noutputs = ["y"]\n', stored=True)
    assert config.fit == FitConfig(adam_epochs=5, lm_steps=6, learning_rate=1e-2, trainable="parameters", remat=True)
    assert config.loss == LossConfig(constraint_penalty=0.5)
    # There was no gap between pieces.
    assert config.data == DataConfig(files=("a.csv",), outputs=("y",), max_step=60.0, blocks=5, block_gap=0)


@pytest.mark.parametrize(
    ("typed", "section", "name", "value"),
    [
        ("fit.seeds=5", "fit", "seeds", 5),
        ("run.folder=runs/b", "run", "folder", "runs/b"),
        ('run.folder="runs/b"', "run", "folder", "runs/b"),
        ("data.outputs=z", "data", "outputs", ("z",)),
        ('data.outputs=["z", "a=b"]', "data", "outputs", ("z", "a=b")),
        ("data.sort=true", "data", "sort", True),
        ("data.scale.x=2", "data", "scale", {"x": 2.0}),
        ('data.scale."x [m]"=2', "data", "scale", {"x": 1e-3, "x [m]": 2.0}),
        ("loss.l2=1e-6", "loss", "l2", 1e-6),
        ("data.blocks=5", "data", "blocks", 5),
    ],
)
def test_overrides(typed, section, name, value):
    assert getattr(getattr(parse_config(TEXT, [typed]), section), name) == value


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("fit.seds=5", "fit: there is no setting 'seds'.*Did you mean 'seeds'"),
        ("fitt.seeds=5", "no section 'fitt'.*Did you mean 'fit'"),
        ("fit.seeds=many", "fit.seeds is 'many'; it must be an integer"),
        ("fit.seeds=true", "fit.seeds is True; it must be an integer"),
        ("fit.seeds=1.5", "fit.seeds is 1.5; it must be an integer"),
        ("fit.seeds=0", "fit.seeds is 0; it must be at least 1"),
        ("fit.seeds=99999999999999999999999", "it must be at most 1000"),
        ("fit.window=99999999999999999999999", "it must be at most 9.2"),
        ("fit.learning_rate=nan", "fit.learning_rate is nan; it must be a finite number"),
        ("fit.learning_rate=0", "fit.learning_rate is 0; it must be greater than 0"),
        ("loss.l2=-1", "loss.l2 is -1; it must be at least 0"),
        ("fit.adam_epochs=0", "leave nothing to do"),
        ("fit.batch_size=0", "fit.batch_size is 0; it must be at least 1"),
        ("data.blocks=1", "data.blocks is 1; it must be at least 2"),
        ("data.block_gap=3", "data.block_gap separates blocks; set data.blocks as well"),
        ("data.max_step=0", "data.max_step is 0; it must be greater than 0"),
        ('run.folder=""', "run.folder is empty"),
        ("data.scale.x=big", "data.scale.x is 'big'; it must be a number"),
        ("data.valid=true", "data.valid is True; it must be a number or a list"),
        ("fit.trainable=some", "fit.trainable is 'some'; it must be 'all', 'per_run' or 'parameters'"),
        ("fit=3", "has no section"),
        ("data.valid=1.5", "data.valid is 1.5"),
        ("data.valid=0.9", "data.valid . data.test is 1.1; no run is left"),
        ("data.outputs=[1]", r"data.outputs\[0\] is 1; it must be a string"),
        ("data.outputs=[]", "data.outputs is missing"),
        ("data.outputs=[", "not valid TOML"),
        ("data.scale=3", "data.scale is 3; it must be a table"),
        ("data.files.x=1", "'files' is a value"),
        ("data.format=xls", "data.format is 'xls'; it must be 'auto', 'csv', 'parquet' or 'mat'"),
        ("loss.huber=-1", "huber"),
        ("loss.scale=big", "loss.scale is 'big'"),
        ("run.track=wandb", "run.track is 'wandb'"),
        ("export.dt=0", "export.dt"),
        (
            "model.width=nan",
            "model.width is nan; it must be a finite number, a string, true or false, a list or",
        ),
        ("model.day=[1979-05-27]", r"model.day is \[datetime.*; it must be a finite number"),
        ("nonsense", "section.name=value"),
        ("=3", "section.name=value"),
        ("fit.seeds=1\nfit.lm_steps=2", "not valid TOML"),
    ],
)
def test_mistakes_are_named(typed, message):
    overrides = [typed] if typed != "data.valid=0.9" else [typed, "data.test=0.2"]
    with pytest.raises(ValueError, match=f"(?s){message}") as refusal:
        parse_config(TEXT, overrides)
    assert "pydantic" not in str(refusal.value)
    assert "\n" not in str(refusal.value).replace(typed, "")  # one line


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "data.files is missing"),
        ("[data", "not valid TOML"),
        ("data = 3", "data is 3; it must be a table"),
        ("x = " + "[" * 5000, "nested too deeply|not valid TOML"),
        ("x = 9" + "9" * 5000, "not valid TOML"),
        ("[data]\nfiles = 1979-05-27\n", "data.files is"),
        ('[data]\nfile = ["a"]\n', "data: there is no setting 'file'.*Did you mean 'files'"),
        ("[data]\nfiles = ['a']\nfiles = ['b']\n", "not valid TOML"),
    ],
)
def test_a_malformed_file(text, message):
    with pytest.raises(ValueError, match=message):
        parse_config(text)


def test_files_that_are_no_text(tmp_path):
    with pytest.raises(FileNotFoundError, match="twinfold new"):
        read_config(tmp_path / "twinfold.toml")
    (tmp_path / "twinfold.toml").write_bytes(b"\xff\xfe[data]")
    with pytest.raises(ValueError, match="UTF-8"):
        read_config(tmp_path / "twinfold.toml")


def test_special_files_are_named(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "zeros").symlink_to("/dev/zero")
    for name, kind in (("fifo", "a FIFO"), ("zeros", "a device"), (".", "a folder")):
        for read in (read_config, load_system):
            with pytest.raises(ValueError, match=f"{name} is {kind}"):
                read(tmp_path / name)
    with pytest.raises(FileNotFoundError, match=r"There is no .*system\.py; system\.file in twinfold\.toml must name"):
        load_system(tmp_path / "system.py")


@pytest.mark.parametrize("name", ["a\\u0000", "a\\nb", "\\u001b[31m", "\\ufffe", "", " ", "x" * 201])
@pytest.mark.parametrize("setting", ["outputs", "inputs", "x0", "time", "run", "group", "columns", "scale", "valid"])
def test_a_name_that_no_file_can_hold(setting, name):
    value = {"columns": '{{ y = "{}" }}', "scale": '{{ "{}" = 2.0 }}'}.get(setting, '"{}"').format(name)
    typed = [f"data.{setting}={value}"]
    if setting in ("run", "group") and not name:
        assert getattr(parse_config(TEXT, typed).data, setting) == ""  # none
        return
    with pytest.raises(ValueError, match=f"^data.{setting}: ") as refusal:
        parse_config(TEXT, typed)
    assert str(refusal.value).isprintable()


SIZED = """
import twinfold as tw


def twin(width, *, depth=1, act="tanh"):
    assert (width, depth, act) == (8, 2, "tanh")
    return tw.Twin(lambda x: -x)
"""


def test_the_table_model_has_the_arguments_of_twin(tmp_path):
    (tmp_path / "system.py").write_text(SIZED)
    (tmp_path / "twinfold.toml").write_text(f"{TEXT}\n[model]\nwidth = 3\ndepth = 2\n")
    workspace = open_workspace(tmp_path, ["model.width=8"])
    assert workspace.config.model == {"width": 8, "depth": 2}
    assert parse_config(workspace.config.toml()) == workspace.config
    assert workspace.config.flat()["model.width"] == 8
    system = workspace.load_system()
    assert system.arguments == {"width": 8, "depth": 2, "act": "tanh"}
    with pytest.raises(ValueError, match="line 6, in twin: AssertionError"):
        system.rebuild({"width": 9})


@pytest.mark.parametrize(
    ("template", "structure"), [("motor", ("odd", "dissipative")), ("tank", ("decreasing",)), ("pendulum", ("odd",))]
)
def test_the_structure_of_a_network_is_a_setting_of_the_templates(template, structure, tmp_path):
    new_project(tmp_path / template, template=template)
    setting = f"model.structure={list(structure)}".replace("'", '"')
    plain, chosen = (open_workspace(tmp_path / template, each).load_system().twin for each in ([], [setting]))
    (part,) = learned_parts(chosen)
    assert isinstance(part, MLP)
    assert part.structure == structure
    (part,) = learned_parts(plain)
    assert isinstance(part, MLP)
    assert part.structure == ()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"widht": 8}, r"model\.widht is set, but twin\(\) has no argument 'widht'.*width, depth, act.*mean 'width'"),
        ({"depth": 2}, r"twin\(\) needs the argument 'width', and \[model\] has depth; set model\.width, or give"),
        ({}, r"twin\(\) needs the argument 'width', and \[model\] has nothing"),
    ],
)
def test_an_argument_that_twin_does_not_have_or_needs(arguments, message, tmp_path):
    (tmp_path / "system.py").write_text(SIZED)
    with pytest.raises(ValueError, match=message):
        load_system(tmp_path / "system.py", arguments=arguments)


def test_a_stored_model_table_is_checked():
    assert stored_arguments({}) == {}
    assert stored_arguments({"model": {"width": 8}}) == {"width": 8}
    for model in (3, {"width": float("nan")}, {"": 1}):
        with pytest.raises(ValueError, match="model"):
            stored_arguments({"model": model})


@pytest.mark.parametrize("line", ["STATES = ['a\\0']", "UNITS = {'a\\n': 'm'}", "UNITS = {'a': '\\x1b'}"])
def test_names_in_system_py(tmp_path, line):
    source = "import twinfold as tw\n\ndef twin():\n    return tw.Twin(lambda x: -x)\n\n"
    (tmp_path / "system.py").write_text(source + line)
    with pytest.raises(ValueError, match=rf"system\.py: {line.split()[0]}: the name .* contains"):
        load_system(tmp_path / "system.py")


def test_every_damaged_file_is_read_or_refused():
    """Characters dropped, doubled and exchanged: a configuration or a ValueError, nothing else."""
    rng = random.Random(0)
    refused = 0
    for _ in range(400):
        text = list(TEXT)
        for _ in range(rng.randint(1, 6)):
            place = rng.randrange(len(text))
            text[place] = rng.choice(["", text[place] * 2, rng.choice("[]{}=\"'\n.,#-0e\\"), "\0"])
        try:
            parse_config("".join(text))
        except ValueError:
            refused += 1
    assert 100 < refused < 400


def test_every_setting_is_listed():
    assert {"fit.seeds", "data.columns", "loss.huber", "run.track", "export.dt"} <= set(setting_names())
