"""Seeds spread over several cores are the same seeds: training does not depend on where it runs."""

import subprocess
import sys

import numpy as np

SCRIPT = """
import sys
import numpy as np
import twinfold as tw
tw.enable_x64()
tw.use_cores(int(sys.argv[1]))
import jax
import jax.numpy as jnp
assert len(jax.local_devices()) == int(sys.argv[1])
ts = np.linspace(0.0, 2.0, 21)
runs = np.stack([np.stack([a * np.cos(ts), -a * np.sin(ts)], 1) for a in (0.5, 1.0, 1.5)])
data = tw.Dataset.from_arrays(ts, runs)
twin = tw.hrpinn(lambda x: jnp.stack([x[1], 0 * x[1]]), tw.MLP(adds_to=[1], width=5, depth=1))
method = (tw.Adam(20, rate=1e-2, batch_size=2), tw.LevenbergMarquardt(4))
fit = tw.fit(twin, data, valid=data, seeds=3, method=method, progress=False)
assert fit.scores.shape == (3,) and fit.history["loss"].shape == (24, 3), fit.history["loss"].shape
simulated = tw.predict(fit, data).predicted[:, 0, -1]
np.save(sys.argv[2], np.concatenate([fit.history["loss"].ravel(), fit.scores, simulated.ravel()]))
"""


def test_a_fit_is_the_same_on_one_core_and_on_two(tmp_path):
    found = []
    for cores in (1, 2):
        out = tmp_path / f"{cores}.npy"
        command = [sys.executable, "-c", SCRIPT, str(cores), str(out)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found.append(np.load(out))
    assert np.isfinite(found[0]).all()
    np.testing.assert_allclose(found[1], found[0], rtol=1e-7)


def test_cores_are_asked_for_before_the_first_array():
    script = "import jax.numpy as jnp, twinfold as tw; jnp.zeros(1); tw.use_cores(2)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "call it before the first one" in done.stderr
