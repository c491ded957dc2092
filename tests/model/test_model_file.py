"""Model files: what is saved comes back to the last bit; what was damaged, tampered or foreign is refused."""

import json
import os
import random
import zipfile

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from twinfold.io import ModelInfo, read_info
from twinfold.io._archive import read_arrays, write_arrays
from twinfold.io._model_info import FORMAT, checksum
from twinfold.model._fields import GreyBox
from twinfold.model._learned.base import Statistics
from twinfold.model._learned.mlp import MLP
from twinfold.model._model_file import load_model, save_model
from twinfold.model._twin import Twin
from twinfold.model._unknown import Unknown
from twinfold.numerics._integrate.explicit import Heun


def spring(t, x, w, p):
    return jnp.stack([x[1], -p["k"] * x[0] + p["own"] * w[0]])


def built(width: int = 4, **options) -> Twin:
    residual = MLP(states=[1], adds_to=[1], width=width, depth=1, scaling="data")
    params = {"k": Unknown(2.0, positive=True), "own": Unknown(1.0, per_run=True), "m": 3.0}
    return Twin(GreyBox(spring, residual), params=params, **options)


def fitted() -> Twin:
    two, one = jnp.array([3.0, 5.0]), jnp.ones(1)
    statistics = Statistics(two, two, two, one, one, jnp.ones(()), jnp.ones(()))
    twin = built().for_runs(("a", "b")).initialise(jax.random.key(3), states=2, inputs=1, statistics=statistics)
    return eqx.tree_at(lambda twin: twin.params["k"].raw, twin, jnp.array(0.1 + 0.2))


ABOUT = ModelInfo(
    states=("x", "v"),
    inputs=("force",),
    outputs=("x", "v"),
    units={"x": "m"},
    dt=0.1,
    x0_example=(1.0, 0.0),
    config={"fit": {"seeds": 3}},
    system_source_sha256="ab" * 32,
    metrics={"test": {"rmse": 0.1 + 0.2}},
)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.twin"
    twin = fitted()
    save_model(path, twin, about=ABOUT)
    return path, twin


def leaves(twin: Twin) -> list:
    return jax.tree.leaves(eqx.filter(twin, eqx.is_array))


def test_every_bit_comes_back(saved):
    path, twin = saved
    loaded = load_model(path, built())
    assert loaded.runs == ("a", "b")
    for before, after in zip(leaves(twin), leaves(loaded), strict=True):
        assert before.dtype == after.dtype
        np.testing.assert_array_equal(before, after)
    again = load_model(path, loaded)  # a fitted twin can be filled as well
    np.testing.assert_array_equal(again.parameters("b")["k"], twin.parameters("b")["k"])
    assert read_info(path) == ABOUT


def test_numpy_reads_it_without_pickles(saved):
    path, _ = saved
    with np.load(path, allow_pickle=False) as arrays:
        assert json.loads(arrays["header"].tobytes())["format"] == FORMAT


@pytest.mark.parametrize(
    ("twin", "message"),
    [
        (built(5), r"residual.network.weights.layers\[0\].weight: shape \(4, 1\) in the file, \(5, 1\) in the twin"),
        (
            Twin(GreyBox(spring, MLP(adds_to=[1])), params={"c": 1.0}),
            r"(?s)params\['c'\].*not in the file.*only in the file",
        ),
        (built(integrator=Heun()), "the twin in the file is built differently"),
    ],
)
def test_another_twin_is_refused_with_what_differs(saved, twin, message):
    with pytest.raises(ValueError, match=message):
        load_model(saved[0], twin)


def test_another_precision_is_named(saved):
    with (
        jax.enable_x64(False),
        pytest.raises(ValueError, match=r"float64 in the file, float32 in the twin.*enable_x64"),
    ):
        load_model(saved[0], built())


def rewritten(path, target, change) -> None:
    """The file with another header and a checksum that fits: what only a forger would write."""
    stored = read_arrays(path)
    header = json.loads(stored["header"].tobytes())
    change(header)
    stored["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    del stored["checksum"]
    write_arrays(target, {"checksum": checksum(stored)} | stored)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda header: header.update(format=FORMAT + 1, twinfold="9.1"),
            f"format {FORMAT + 1}, written by twinfold 9.1",
        ),
        (lambda header: header.update(magic="other"), "not a model file"),
        (lambda header: header.update(format=None), "not a model file"),
        (lambda header: header.update(runs=5), "header.runs is 5"),
        (lambda header: header.update(runs=None), "groups without runs"),
        (lambda header: header.update(extra=1), "no setting 'extra'"),
        (lambda header: header["about"].update(states=[1]), r"header.about.states\[0\] is 1; it must be a string"),
        (lambda header: header["about"].update(config="os.system"), "header.about.config is 'os.system'"),
        (lambda header: header["arrays"].pop(), "other arrays"),
        (lambda header: header["arrays"][0].update(shape="big"), r"header.arrays\[0\].shape is 'big'"),
        (lambda header: header["arrays"][0].update(shape=[10**12]), "the header lists other arrays"),
        (lambda header: header["about"].update(states=["x"]), "holds another twin|no state 1"),
    ],
)
def test_a_forged_header_is_refused(saved, tmp_path, change, message):
    rewritten(saved[0], tmp_path / "model.twin", change)
    with pytest.raises(ValueError, match=message):
        load_model(tmp_path / "model.twin", built())


def test_an_array_that_promises_gigabytes_is_refused_before_it_is_allocated(tmp_path):
    path = tmp_path / "bomb.twin"
    head = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }"
    head = head.ljust(117) + b"\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("header.npy", b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head)
    with pytest.raises(ValueError, match="does not match its size in the file"):
        read_info(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.npy", bytes(10**7))
    with pytest.raises(ValueError, match="larger than the file"):
        read_info(path)


def test_a_pickle_is_never_loaded(tmp_path):
    class Bad:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path}/executed",)

    path = tmp_path / "bad.twin"
    with path.open("wb") as file:
        np.savez(file, header=np.array([Bad()], dtype=object), checksum=np.zeros(1))
    with pytest.raises(ValueError, match="does not contain numbers"):
        read_info(path)
    assert not (tmp_path / "executed").exists()


def test_files_that_are_none(tmp_path):
    with pytest.raises(FileNotFoundError, match="twinfold fit"):
        read_info(tmp_path / "none.twin")
    for content in (b"", b"PK", b"hello", bytes(1000)):
        (tmp_path / "some.twin").write_bytes(content)
        with pytest.raises(ValueError, match="not a model file"):
            read_info(tmp_path / "some.twin")
    with pytest.raises(ValueError, match="not a model file"):
        read_info(tmp_path)


def test_every_damaged_file_is_refused(saved, tmp_path):
    """Cut anywhere, or with any byte changed: refused, unless the byte says nothing of the contents (a date)."""
    whole = saved[0].read_bytes()
    path, rng = tmp_path / "model.twin", random.Random(0)
    accepted = 0
    for trial in range(400):
        content = bytearray(whole)
        if trial % 2:
            content = content[: rng.randrange(len(content))]
        else:
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        path.write_bytes(content)
        try:
            found = read_info(path)
        except ValueError:
            continue
        accepted += 1
        assert found == ABOUT
    assert accepted < 100


def test_a_failed_save_leaves_the_old_file(saved, tmp_path):
    path = tmp_path / "model.twin"
    path.write_bytes(saved[0].read_bytes())
    bad = eqx.tree_at(lambda twin: twin.params["k"].raw, saved[1], jnp.zeros((), jnp.bfloat16))
    with pytest.raises(ValueError, match=r"params\['k'\].raw holds bfloat16"):
        save_model(path, bad, about=ABOUT)
    assert read_info(path) == ABOUT
    assert [each.name for each in tmp_path.iterdir()] == ["model.twin"]
