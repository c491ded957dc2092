"""The FMU against the twin, in FMPy, in the minimal host and in a host in C."""

import ctypes
import subprocess
import zipfile

import jax.numpy as jnp
import numpy as np
import pytest
from support.exports import PENDULUM_SPEC as SPEC
from support.exports import needs_compiler, pendulum_twin

import twinfold as tw
from twinfold.export import export_fmu
from twinfold.export._c.compiled import find_compiler
from twinfold.export._fmu.host import Host, HostError
from twinfold.export._step import precision


@needs_compiler
def test_fmu(tmp_path):
    """The FMU passes FMPy, if installed; a host can set parameters, and save and restore the state."""
    twin = pendulum_twin(tw.Tangent())
    report = export_fmu(twin, SPEC, tmp_path, horizon=60)
    assert report.checked, report.messages
    assert (report.free_running_difference or 0.0) <= 1e-9
    with zipfile.ZipFile(report.files[0]) as archive:
        archive.extractall(tmp_path / "inside")
        text = archive.read("modelDescription.xml").decode()
    guid = text.split('guid="')[1].split('"')[0]
    for expected in ('name="ux"', 'name="angle"', 'name="vx"', 'name="g"', 'start="9.81"', 'unit="m/s"'):
        assert expected in text
    (library,) = (tmp_path / "inside" / "binaries").glob("*/pendulum*")
    with pytest.raises(HostError, match="GUID"):
        Host(library, "{another}")
    host = Host(library, guid)
    host.start(0.0, np.zeros(2))
    host.step(0.0, 0.01)
    saved = ctypes.c_void_p()
    host.call("fmi2GetFMUstate", ctypes.byref(saved))
    host.step(0.01, 0.05)  # five steps at once
    later = host.get(4, 4)
    host.call("fmi2SetFMUstate", saved)
    for k in range(5):
        host.step(0.01 + 0.01 * k, 0.01)
    np.testing.assert_allclose(host.get(4, 4), later, rtol=1e-14)
    with pytest.raises(HostError, match=r"multiple of 0\.01"):
        host.step(0.06, 0.015)
    host.call("fmi2SetFMUstate", saved)
    host.set(8, np.array([0.0]))  # no gravity
    host.step(0.01, 0.05)
    assert abs(host.get(4, 4)[3] - later[3]) > 0.1
    host.call("fmi2FreeFMUstate", ctypes.byref(saved))
    host.close()


HOST = r"""
#include <dlfcn.h>
#include <stdio.h>
typedef struct { void *f[5]; } Callbacks;
int main(int count, char **args)
{
    Callbacks none = {{0}};
    void *library = dlopen(args[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) { puts(dlerror()); return 1; }
    void *(*make)(const char *, int, const char *, const char *, void *, int, int) = dlsym(library, "fmi2Instantiate");
    int (*setup)(void *, int, double, double, int, double) = dlsym(library, "fmi2SetupExperiment");
    int (*enter)(void *) = dlsym(library, "fmi2EnterInitializationMode");
    int (*leave)(void *) = dlsym(library, "fmi2ExitInitializationMode");
    int (*step)(void *, double, double, int) = dlsym(library, "fmi2DoStep");
    int (*get)(void *, const unsigned *, size_t, double *) = dlsym(library, "fmi2GetReal");
    void *slave = make("host", 1, args[2], 0, &none, 0, 0);
    if (!slave || setup(slave, 0, 0, 0, 0, 0) || enter(slave) || leave(slave)) return 2;
    for (int k = 0; k < 100; k++) if (step(slave, 0.01 * k, 0.01, 1)) return 3;
    unsigned at[4] = {4, 5, 6, 7};
    double x[4];
    if (get(slave, at, 4, x)) return 4;
    printf("%.17g %.17g %.17g %.17g\n", x[0], x[1], x[2], x[3]);
    return count == 0;
}
"""


@pytest.mark.slow
@needs_compiler
def test_plain_c_host(tmp_path):
    """A short C program loads the binary of the FMU and runs it without Python."""
    twin = pendulum_twin(tw.Newton())
    report = export_fmu(twin, SPEC, tmp_path, horizon=20)
    with zipfile.ZipFile(report.files[0]) as archive:
        archive.extractall(tmp_path / "inside")
        guid = archive.read("modelDescription.xml").decode().split('guid="')[1].split('"')[0]
    (library,) = (tmp_path / "inside" / "binaries").glob("*/pendulum*")
    (tmp_path / "host.c").write_text(HOST)
    program = tmp_path / "host"
    subprocess.run([find_compiler() or "", str(tmp_path / "host.c"), "-o", str(program), "-ldl"], check=True)
    done = subprocess.run([str(program), str(library), guid], capture_output=True, text=True, check=True)
    with precision(np.float64):
        ts = 0.01 * np.arange(101)
        expected = twin.simulate(jnp.asarray(SPEC.x0), jnp.asarray(ts), jnp.zeros((101, 2))).xs[-1]
    np.testing.assert_allclose(np.array(done.stdout.split(), float), expected, atol=1e-9)
