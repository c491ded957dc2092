"""The double pendulums among the public measurements: loaders, physics in two coordinates, frames, free runs."""

import gzip

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from twinfold_studies.real.double_pendulum import (
    Angles,
    Resistance,
    angular_accelerations,
    mechanism,
    positions,
    rod_rates,
    state,
)
from twinfold_studies.real.free_runs import SEEN, STEP, by_steps, constant_velocity, cut, on_grid, persistence, score
from twinfold_studies.real.loaders import dfki_double_pendulum, ibm_double_pendulum, lynx_hare, schmidt_lipson
from twinfold_studies.real.location import find_real
from twinfold_studies.real.pendulum_video import NOMINAL, RATIO, free_runs, outputs, pieces, rod_angles, sequences

import twinfold as tw

P = {"A": 1.0, "B": 0.08, "C": 0.1, "D": 70.0, "G": 68.0, "tilt": 0.1, "ratio": RATIO, "viscous": np.array([0.3, 0.1])}


def real(name):
    try:
        return find_real(name)
    except FileNotFoundError as error:
        pytest.skip(f"no measurements: {error}")


def energy(p, angles, rates):
    """T + V of the equations of `double_pendulum`, by hand."""
    kinetic = 0.5 * p["A"] * rates[0] ** 2 + 0.5 * p["B"] * rates[1] ** 2
    kinetic += p["C"] * jnp.cos(angles[0] - angles[1]) * rates[0] * rates[1]
    down = jnp.cos(angles - p["tilt"])
    return kinetic - p["D"] * down[0] - p["C"] * p["G"] * down[1]


def test_accelerations_are_those_of_lagrange():
    """d/dt dL/drate = dL/dangle, without friction."""
    p = P | {"viscous": jnp.zeros(2)}
    angles, rates = jnp.array([0.7, -1.9]), jnp.array([3.0, -5.0])
    acceleration = Angles(Resistance())(jnp.concatenate([angles, rates]), p)[2:]

    def lagrangian(angles, rates):
        return energy(p, angles, rates) - 2 * energy(p, angles, jnp.zeros(2))

    momentum = jax.grad(lagrangian, 1)
    _, change = jax.jvp(momentum, (angles, rates), (rates, acceleration))
    np.testing.assert_allclose(change, jax.grad(lagrangian, 0)(angles, rates), rtol=1e-12)


def test_a_motor_in_the_elbow_turns_with_it():
    """Its kinetic energy is rotor (th2' - th1')^2 / 2; power in equals the change of energy."""
    p = P | {"viscous": jnp.zeros(2), "rotor": 0.05, "tilt": 0.0}
    angles, rates, torques = jnp.array([0.7, -1.9]), jnp.array([3.0, -5.0]), jnp.array([0.4, -0.3])
    acceleration = angular_accelerations(angles, rates, torques, p)

    def total(angles, rates):
        return energy(p, angles, rates) + 0.5 * p["rotor"] * (rates[1] - rates[0]) ** 2

    _, power = jax.jvp(total, (angles, rates), (rates, acceleration))
    np.testing.assert_allclose(power, torques[0] * rates[0] + torques[1] * (rates[1] - rates[0]), rtol=1e-12)


@pytest.mark.slow
def test_positions_and_angles_are_the_same_pendulum():
    """With viscous friction: one trajectory in both coordinates, and rods that keep their length."""
    resistance = Resistance()
    p = {name: np.asarray(value) for name, value in P.items()}
    pendulum = mechanism(resistance)
    held = tw.Twin(pendulum, params=p, constraint=tw.constraint_of(pendulum), projection=tw.Newton())
    ts = np.arange(200) / 2000
    angles, rates = jnp.array([1.5, 2.5]), jnp.array([4.0, -9.0])
    x0 = state(angles, rates, RATIO)
    np.testing.assert_allclose(rod_rates(x0[:4], x0[4:]), rates, rtol=1e-12)
    in_angles = tw.Twin(Angles(resistance), params=p).simulate(jnp.concatenate([angles, rates]), ts).xs
    in_positions = held.simulate(x0, ts)
    np.testing.assert_allclose(in_positions.xs[:, :4], positions(in_angles[:, :2], RATIO), atol=1e-7)
    assert float(np.max(in_positions.trajectory.relative_violation)) < 1e-12


def swinging(frames, scale=600.0):
    """Integer frames of a pendulum whose rods turn at constant rates."""
    angle = np.stack([0.3 + 0.02 * np.arange(frames), -0.5 + 0.05 * np.arange(frames)], 1)
    q = scale * np.asarray(positions(jnp.asarray(angle), RATIO)).reshape(-1, 2, 2)
    return angle, np.concatenate([np.zeros((frames, 1, 2)), q], 1) + 1200.0


def video(folder, run, first, length):
    """A made-up set: one run, and a test sequence cut out of it."""
    header = "x0,y0,x1,y1,x2,y2"
    rows = np.rint(run.reshape(-1, 6)).astype(int)
    lines = [f"run,k,{header}", *(f"0,{k}," + ",".join(map(str, row)) for k, row in enumerate(rows))]
    (folder / "original_runs_a.csv.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    part = [f"test,7,{'in' if k < 4 else 'target'},{k}," + ",".join(map(str, rows[first + k])) for k in range(length)]
    text = "\n".join([f"part,seq,role,k,{header}", *part])
    (folder / "official_test_and_validation.csv.gz").write_bytes(gzip.compress(text.encode()))
    return ibm_double_pendulum.load(folder)


def test_video_is_read_and_overlaps_are_found(tmp_path):
    records = video(tmp_path, swinging(400)[1], first=150, length=20)
    assert list(records) == ["run-0", "test-7"]
    assert records["run-0"]["t"][1] == 1 / 400
    np.testing.assert_array_equal(ibm_double_pendulum.held_out(records, "run-0"), [[150, 169]])
    for _, start in pieces(records, ("run-0",), 60, 30):
        assert start + 30 <= 150 or start > 169


def test_video_with_a_missing_frame_is_refused(tmp_path):
    video(tmp_path, swinging(50)[1], first=10, length=8)
    lines = gzip.decompress((tmp_path / "original_runs_a.csv.gz").read_bytes()).decode().splitlines()
    (tmp_path / "original_runs_a.csv.gz").write_bytes(gzip.compress("\n".join(lines[:20] + lines[21:]).encode()))
    with pytest.raises(ValueError, match="run-0: frames are missing"):
        ibm_double_pendulum.load(tmp_path)


def test_angles_outputs_and_first_guesses_of_frames():
    angle, frames = swinging(40)
    np.testing.assert_allclose(rod_angles(frames), angle, atol=1e-12)
    expected = 600 / NOMINAL * np.asarray(positions(jnp.asarray(angle), RATIO))
    np.testing.assert_allclose(outputs(frames, 4), expected, atol=1e-12)
    (run,) = sequences({"a": frames}, 4).runs
    assert run.x0 is not None
    np.testing.assert_allclose(run.x0, [0.3, -0.5, 8.0, 20.0], atol=1e-9)


def test_free_runs_do_not_overlap(tmp_path):
    records = video(tmp_path, swinging(400)[1], first=150, length=20)
    found = free_runs(records, ("run-0",), 120)
    assert list(found) == ["run-0@0", "run-0@120", "run-0@240"]
    np.testing.assert_array_equal(found["run-0@120"], ibm_double_pendulum.markers(records["run-0"])[120:240])


def test_gaps_become_missing_values():
    t = np.array([5.0, 5.01, 5.04, 5.05])
    grid = on_grid({"t": t, "a": np.arange(4.0)}, ("a",))
    np.testing.assert_array_equal(grid[:, 0], [0, 1, np.nan, np.nan, 2, 3])


def test_free_runs_in_angles():
    """A line is predicted exactly by the line, and by no other simple rule; missing values do not count."""
    t = STEP * np.arange(330)
    angles = np.stack([2 * t, -3 * t], 1)
    states = np.hstack([angles, np.tile([2.0, -3.0], (len(t), 1))])
    angles[203] = states[110] = np.nan
    runs = cut("a", angles, states, every=100)
    assert [run.name for run in runs] == ["a@0", "a@100", "a@200"]
    assert score(runs, constant_velocity(runs)) < 1e-12
    slopes = np.sqrt((2**2 + 3**2) / 2) * STEP
    expected = slopes * np.sqrt(np.mean(np.arange(1, 101) ** 2))
    np.testing.assert_allclose(score(runs[:1], persistence(runs[:1])), expected, rtol=1e-9)
    ended = by_steps(lambda u, y: np.full((len(u), 2), np.inf), runs)
    np.testing.assert_allclose(score(runs, ended), 4 * np.pi)
    assert SEEN == 10


def test_a_piece_starts_where_something_was_measured():
    states = np.zeros((230, 4))
    states[100:103] = np.nan
    runs = cut("a", states[:, :2], states, every=100)
    assert [run.name for run in runs] == ["a@0", "a@103"]


def test_torques_keep_their_impulse(tmp_path):
    """Resampled to longer steps; irregular and repeated times."""
    rows = ["run,t_s,q1_rad,q2_rad,dq1_rad_s,dq2_rad_s,tau1_Nm,tau2_Nm"]
    t = np.array([0.0, 0.002, 0.005, 0.005, 0.007, 0.01, 0.013, 0.016, 0.02, 0.021])
    rows += [f"trajectory_00,{each},{each},0,1,0,{2 * each},1" for each in t]
    (tmp_path / "sysid_design_C0.csv.gz").write_bytes(gzip.compress("\n".join(rows).encode()))
    record = dfki_double_pendulum.load(tmp_path)["trajectory_00"]
    assert len(record["t"]) == 9
    even = dfki_double_pendulum.resampled(record, 0.01)
    np.testing.assert_allclose(even["t"], [0.0, 0.01])
    np.testing.assert_allclose(even["q1"], even["t"])
    np.testing.assert_allclose(even["tau1"], [0.01, 0.03])  # the mean of 2t over each step


def test_trials_and_pelts_are_read(tmp_path):
    header = "trial,t_s,theta1,theta2,omega1,omega2,omega1_dup,omega2_dup,alpha1,alpha2"
    (tmp_path / "real_double_pend_h_1.csv").write_text(
        "\n".join([header, "0,0.0,1,2,3,4,3,4,5,6", "1,9.0,7,8,9,10,9,10,11,12", "1,9.1,7,8,9,10,9,10,11,12"])
    )
    found = schmidt_lipson.load_double(tmp_path)
    assert list(found) == ["trial-0", "trial-1"]
    np.testing.assert_array_equal(found["trial-1"]["t"], [9.0, 9.1])
    np.testing.assert_array_equal(found["trial-0"]["omega2"], [4.0])
    (tmp_path / "lynx_hare.csv").write_text("year,lynx_thousand_pelts,hare_thousand_pelts\n1900,4,30\n1901,6.1,47.2\n")
    pelts = lynx_hare.load(tmp_path)["pelts"]
    np.testing.assert_array_equal(pelts["t"], [0, 1])
    np.testing.assert_array_equal(pelts["hare"], [30, 47.2])


def test_real_video():
    """Rods to 0.3 %; 18 of the 60 test sequences lie in the seven runs."""
    records = ibm_double_pendulum.load(real("ibm_double_pendulum"))
    assert sum(name.startswith("test-") for name in records) == 60
    held = {name: ibm_double_pendulum.held_out(records, name) for name in records if name.startswith("run-")}
    assert sum(len(each) for each in held.values()) == 28
    rods = np.linalg.norm(np.diff(ibm_double_pendulum.markers(records["run-2"]), axis=1), axis=-1)
    np.testing.assert_allclose(rods.mean(0), [588.7, 450.6], atol=0.1)
    assert np.all(rods.std(0) / rods.mean(0) < 0.004)


def test_real_arm_and_trials():
    records = dfki_double_pendulum.load(real("dfki_double_pendulum"))
    assert len(records) == 9
    assert np.all(np.diff(records["trajectory_12"]["t"]) > 0)
    trials = schmidt_lipson.load_double(real("schmidt_lipson"))
    assert [len(each["t"]) for each in trials.values()] == [819, 701]
