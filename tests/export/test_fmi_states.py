"""The state machine of FMI 2.0 co-simulation (section 4.2.4): which calls are allowed when, and hostile arguments."""

import ctypes
import threading
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.exports import needs_compiler

import twinfold as tw
from twinfold.export import ExportSpec, export_fmu
from twinfold.export._fmu.host import Host, HostError

pytestmark = needs_compiler
OK, DISCARD, ERROR = 0, 2, 3
DT = 0.1
U, Y, X, K, START, STATUS = range(6)  # value references
NAN, INF = float("nan"), float("inf")


@dataclass(frozen=True)
class Binary:
    archive: Path
    library: Path
    guid: str


@pytest.fixture(scope="module")
def binary(tmp_path_factory) -> Binary:
    """One FMU for all tests; exporting it validates and simulates it with FMPy, if that is installed."""
    folder = tmp_path_factory.mktemp("fmu")
    twin = tw.Twin(lambda x, w, p: w**3 - p["k"] * x, params={"k": 1.0}, input_interpolation="linear")
    spec = ExportSpec("lag", ["x"], ["u"], ["y"], dt=DT, x0=[1.0], w_low=[-1], w_high=[1])
    report = export_fmu(twin, spec, folder, horizon=20)
    assert report.checked, report.messages
    with zipfile.ZipFile(report.files[0]) as archive:
        archive.extractall(folder)
        guid = archive.read("modelDescription.xml").decode().split('guid="')[1].split('"')[0]
    (library,) = (folder / "binaries").glob("*/lag*")
    return Binary(report.files[0], library, guid)


class Slave(Host):
    """The minimal host, with the status of every call."""

    def status(self, function: str, *args: Any) -> int:
        return getattr(self._library, function)(self._slave, *args)

    def on_null(self, function: str, *args: Any) -> int:
        return getattr(self._library, function)(None, *args)

    def set_up(self, start: float = 0.0, *, stop: float | None = None, tolerance: float | None = None) -> int:
        pairs = [(value is not None, ctypes.c_double(value or 0.0)) for value in (tolerance, stop)]
        return self.status("fmi2SetupExperiment", *pairs[0], ctypes.c_double(start), *pairs[1])

    def do_step(self, t: float, length: float) -> int:
        return self.status("fmi2DoStep", ctypes.c_double(t), ctypes.c_double(length), 1)

    def last_time(self) -> float:
        value = ctypes.c_double()
        self.call("fmi2GetRealStatus", 2, ctypes.byref(value))
        return value.value

    def bytes_of_state(self) -> bytes:
        saved, size = ctypes.c_void_p(), ctypes.c_size_t()
        self.call("fmi2GetFMUstate", ctypes.byref(saved))
        self.call("fmi2SerializedFMUstateSize", saved, ctypes.byref(size))
        content = ctypes.create_string_buffer(size.value)
        self.call("fmi2SerializeFMUstate", saved, content, size)
        self.call("fmi2FreeFMUstate", ctypes.byref(saved))
        assert saved.value is None
        return content.raw

    def restore(self, content: bytes, size: int | None = None) -> int:
        saved, size = ctypes.c_void_p(), len(content) if size is None else size
        found = self.status("fmi2DeSerializeFMUstate", content, ctypes.c_size_t(size), ctypes.byref(saved))
        if found == OK:
            self.call("fmi2SetFMUstate", saved)
            self.call("fmi2FreeFMUstate", ctypes.byref(saved))
        return found


@pytest.fixture
def slave(binary):
    host = Slave(binary.library, binary.guid)
    yield host
    host.close()


def initialised(slave: Slave) -> None:
    slave.call("fmi2Reset")
    slave.start(0.0, np.zeros(1))


def failed_step(slave: Slave) -> None:
    initialised(slave)
    slave.set(U, np.array([NAN]))
    assert slave.do_step(0.0, DT) == DISCARD


def initialising(slave: Slave) -> None:
    slave.call("fmi2Reset")
    assert slave.set_up() == OK
    slave.call("fmi2EnterInitializationMode")


def terminated(slave: Slave) -> None:
    initialised(slave)
    slave.call("fmi2Terminate")


def in_error(slave: Slave) -> None:
    initialised(slave)
    assert slave.do_step(0.0, -1.0) == ERROR


STATES: dict[str, Callable[[Slave], None]] = {
    "instantiated": lambda slave: slave.call("fmi2Reset"),
    "initialising": initialising,
    "step complete": initialised,
    "step failed": failed_step,
    "terminated": terminated,
    "error": in_error,
}
ANY = set(STATES)
CAN_GET = ANY - {"instantiated"}
CAN_SET = {"instantiated", "initialising", "step complete"}
CAN_GET_STATUS = {"step complete", "step failed", "terminated"}

AT = (ctypes.c_uint * 1)(U)
REAL, WHOLE, SIZE = (ctypes.c_double * 1)(), (ctypes.c_int * 1)(), ctypes.c_size_t()
FIRST_ORDER, SECOND_ORDER = (ctypes.c_int * 1)(1), (ctypes.c_int * 1)(2)
ONE, NONE = ctypes.c_size_t(1), ctypes.c_size_t(0)
FIRST = (ctypes.c_double(0.0), ctypes.c_double(DT), 1)
# Each function with arguments that are right, and the states in which it is allowed.
FUNCTIONS: dict[str, tuple[tuple, set[str]]] = {
    "fmi2SetDebugLogging": ((1, NONE, None), ANY),
    "fmi2SetupExperiment": ((0, ctypes.c_double(), ctypes.c_double(), 0, ctypes.c_double()), {"instantiated"}),
    "fmi2EnterInitializationMode": ((), set()),  # not without fmi2SetupExperiment; tested below
    "fmi2ExitInitializationMode": ((), {"initialising"}),
    "fmi2Terminate": ((), {"step complete", "step failed"}),
    "fmi2Reset": ((), ANY),
    "fmi2GetReal": ((AT, ONE, REAL), CAN_GET),
    "fmi2GetInteger": (((ctypes.c_uint * 1)(STATUS), ONE, WHOLE), CAN_GET),
    "fmi2GetBoolean": ((None, NONE, None), CAN_GET),
    "fmi2GetString": ((None, NONE, None), CAN_GET),
    "fmi2SetReal": ((AT, ONE, REAL), CAN_SET),
    "fmi2SetInteger": ((None, NONE, None), CAN_SET),
    "fmi2SetBoolean": ((None, NONE, None), CAN_SET),
    "fmi2SetString": ((None, NONE, None), CAN_SET),
    "fmi2SetRealInputDerivatives": ((AT, ONE, FIRST_ORDER, REAL), CAN_SET),
    "fmi2GetRealOutputDerivatives": ((AT, ONE, FIRST_ORDER, REAL), set()),
    "fmi2GetDirectionalDerivative": ((AT, ONE, AT, ONE, REAL, REAL), set()),
    "fmi2DoStep": (FIRST, {"step complete"}),
    "fmi2CancelStep": ((), set()),
    "fmi2GetRealStatus": ((2, REAL), CAN_GET_STATUS),
    "fmi2GetBooleanStatus": ((3, WHOLE), CAN_GET_STATUS),
}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_is_allowed_in_its_states_only(function, slave):
    arguments, allowed = FUNCTIONS[function]
    for state, reach in STATES.items():
        reach(slave)
        slave.log.clear()
        found = slave.status(function, *arguments)
        assert found == (OK if state in allowed else ERROR), (state, slave.log)
        if found == ERROR:
            assert function in slave.log[-1]
            assert slave.status("fmi2DoStep", *FIRST) == ERROR  # an error ends the simulation
    assert slave.on_null(function, *arguments) == ERROR
    initialised(slave)  # the slave is as good as new after a reset
    assert slave.do_step(0.0, DT) == OK


@pytest.mark.parametrize("state", STATES)
def test_states_are_saved_and_restored_in_any_state(state, slave):
    initialised(slave)
    slave.set(U, np.array([0.5]))
    good = slave.bytes_of_state()
    slave.step(0.0, DT)
    expected = slave.get(Y, 2)
    STATES[state](slave)
    slave.bytes_of_state()
    assert slave.restore(good) == OK
    slave.step(0.0, DT)
    np.testing.assert_array_equal(slave.get(Y, 2), expected)


@pytest.mark.parametrize("function", ["fmi2GetStatus", "fmi2GetIntegerStatus", "fmi2GetStringStatus"])
def test_a_question_without_answer_is_discarded(function, slave):
    initialised(slave)
    value = ctypes.c_void_p()
    assert slave.status(function, 0, ctypes.byref(value)) == DISCARD
    assert slave.do_step(0.0, DT) == OK


def test_initialisation_needs_a_set_up_experiment_once(slave):
    assert slave.status("fmi2EnterInitializationMode") == ERROR
    assert "call fmi2SetupExperiment before it" in slave.log[-1]
    initialising(slave)
    assert slave.status("fmi2EnterInitializationMode") == ERROR
    slave.call("fmi2Reset")
    assert slave.status("fmi2EnterInitializationMode") == ERROR  # a reset forgets the experiment


@pytest.mark.parametrize("length", [INF, -INF, 1e300, NAN, 0.0, -1.0, 5e-324, 0.15, DT * 1_000_001])
def test_a_step_of_no_use_returns_at_once(length, slave):
    initialised(slave)
    found: list[int] = []
    caller = threading.Thread(target=lambda: found.append(slave.do_step(0.0, length)), daemon=True)
    caller.start()  # a call that never returns ends with the tests
    caller.join(1)
    assert found == [ERROR]
    assert "communication step" in slave.log[-1]


def test_the_longest_step(slave):
    """A million steps at once, as many as are allowed, take less than a second here."""
    initialised(slave)
    assert slave.do_step(0.0, DT * 1_000_000) == OK
    assert slave.last_time() == pytest.approx(DT * 1_000_000)


@pytest.mark.parametrize("t", [NAN, INF, -INF, 0.0, DT, 3 * DT, 2 * DT + 1e-5, -2 * DT, 1e300])
def test_time_neither_jumps_nor_goes_back(t, slave):
    initialised(slave)
    slave.step(0.0, 2 * DT)
    good = slave.bytes_of_state()
    assert slave.do_step(t, DT) == ERROR
    assert "is not the time 0.2" in slave.log[-1]
    assert slave.restore(good) == OK
    assert slave.do_step(2 * DT + 1e-9, DT) == OK  # rounding


@pytest.mark.parametrize("start", [0.0, 1.7e9, -1e6])
def test_a_host_that_adds_up_its_time(start, slave):
    """Its rounding errors add up too; each step is compared with the one before."""
    slave.start(start, np.zeros(1))
    t = start
    for _ in range(3000):
        assert slave.do_step(t, DT) == OK
        t += DT


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"start": NAN}, "start time"),
        ({"start": INF}, "start time"),
        ({"stop": -1.0}, "stop time"),
        ({"stop": NAN}, "stop time"),
        ({"tolerance": NAN}, "tolerance"),
        ({"tolerance": -1.0}, "tolerance"),
    ],
)
def test_an_experiment_without_sense_is_refused(arguments, message, slave):
    assert slave.set_up(**arguments) == ERROR
    assert message in slave.log[-1]


def test_no_step_goes_beyond_the_stop_time(slave):
    assert slave.set_up(1.0, stop=1.0 + 3 * DT, tolerance=1e-6) == OK
    slave.call("fmi2EnterInitializationMode")
    slave.call("fmi2ExitInitializationMode")
    for k in range(3):
        slave.step(1.0 + k * DT, DT)
    assert slave.do_step(1.0 + 3 * DT, DT) == ERROR
    assert "beyond the stop time" in slave.log[-1]


def test_a_failed_step_keeps_the_last_good_one(slave):
    """The input rises until its cube overflows, in the third of five steps."""
    slope = np.array([2.5e103])

    def begin() -> None:
        initialised(slave)
        slave.set(U, np.zeros(1))
        slave.set_slopes(slope)

    begin()
    slave.step(0.0, 2 * DT)
    good = slave.get(U, 3)
    begin()
    assert slave.do_step(0.0, 5 * DT) == DISCARD
    assert "At t = 0.3" in slave.log[-1]
    assert slave.last_time() == 2 * DT
    np.testing.assert_array_equal(slave.get(U, 3), good)
    assert slave.status("fmi2GetInteger", (ctypes.c_uint * 1)(STATUS), ONE, WHOLE) == OK
    assert WHOLE[0] == 1
    assert slave.do_step(2 * DT, DT) == ERROR


@pytest.mark.parametrize(("reference", "value"), [(U, NAN), (U, INF), (K, NAN), (K, -INF)])
def test_values_that_are_not_numbers_fail_the_step(reference, value, slave):
    initialised(slave)
    slave.set(reference, np.array([value]))
    assert slave.do_step(0.0, 1000 * DT) == DISCARD
    assert slave.last_time() == 0.0
    initialising(slave)
    slave.set(START, np.array([NAN]))
    assert slave.status("fmi2ExitInitializationMode") == ERROR
    assert "Initialisation failed" in slave.log[-1]


def test_which_variables_can_be_set_when(slave):
    for state in CAN_SET:
        for reference in (U, Y, X, K, START, STATUS, 6, 2**32 - 1):
            STATES[state](slave)
            settable = {U, K} if state == "step complete" else {U, K, START}
            found = slave.status("fmi2SetReal", (ctypes.c_uint * 1)(reference), ONE, REAL)
            assert found == (OK if reference in settable else ERROR), (state, reference)


@pytest.mark.parametrize("reference", [STATUS, 6, 2**31, 2**32 - 1])
def test_there_are_no_other_variables(reference, slave):
    at = (ctypes.c_uint * 1)(reference)
    calls = [("fmi2GetReal", REAL), ("fmi2SetReal", REAL), ("fmi2GetBoolean", WHOLE), ("fmi2SetString", None)]
    for function, value in [*calls, *([] if reference == STATUS else [("fmi2GetInteger", WHOLE)])]:
        initialised(slave)
        assert slave.status(function, at, ONE, value) == ERROR
    for place, order in ((at, FIRST_ORDER), (AT, SECOND_ORDER)):
        initialised(slave)
        assert slave.status("fmi2SetRealInputDerivatives", place, ONE, order, REAL) == ERROR


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        ("fmi2GetReal", (None, ONE, REAL)),
        ("fmi2GetReal", (AT, ONE, None)),
        ("fmi2SetReal", (None, ONE, REAL)),
        ("fmi2SetReal", (AT, ONE, None)),
        ("fmi2GetInteger", (AT, ONE, None)),
        ("fmi2SetRealInputDerivatives", (None, ONE, FIRST_ORDER, REAL)),
        ("fmi2SetRealInputDerivatives", (AT, ONE, None, REAL)),
        ("fmi2SetRealInputDerivatives", (AT, ONE, FIRST_ORDER, None)),
        ("fmi2GetRealStatus", (2, None)),
        ("fmi2GetBooleanStatus", (3, None)),
        ("fmi2GetFMUstate", (None,)),
        ("fmi2SetFMUstate", (None,)),
        ("fmi2FreeFMUstate", (None,)),
        ("fmi2SerializedFMUstateSize", (None, ctypes.byref(SIZE))),
        ("fmi2SerializedFMUstateSize", (ctypes.create_string_buffer(8), None)),
        ("fmi2SerializeFMUstate", (None, None, NONE)),
        ("fmi2DeSerializeFMUstate", (None, NONE, ctypes.byref(ctypes.c_void_p()))),
        ("fmi2DeSerializeFMUstate", (b"", NONE, None)),
    ],
)
def test_null_pointers_are_refused(function, arguments, slave):
    initialised(slave)
    assert slave.status(function, *arguments) == ERROR
    assert function in slave.log[-1]
    assert slave.on_null(function, *arguments) == ERROR


def test_bytes_that_are_no_state_are_refused(slave):
    """Another size, noise, and a state whose phase or time was changed."""
    initialised(slave)
    good = slave.bytes_of_state()
    noise = np.random.default_rng(0).bytes
    phase, t = good.index(b"\x04\0\0\0", 8), good.index(np.float64(INF).tobytes()) - 8
    bad = [b"", good[:-1], good + b"\0", bytes(len(good)), *(noise(len(good)) for _ in range(100))]
    bad += [good[:phase] + code.to_bytes(4, "little") + good[phase + 4 :] for code in (0, 3, 64, 2**31)]
    bad += [good[:t] + np.float64(value).tobytes() + good[t + 8 :] for value in (NAN, INF)]
    for content in bad:
        initialised(slave)
        assert slave.restore(content) == ERROR
        assert "not a state of lag" in slave.log[-1]
    initialised(slave)
    memory = ctypes.cast(ctypes.create_string_buffer(len(good)), ctypes.c_void_p)
    assert slave.status("fmi2SetFMUstate", memory) == ERROR
    assert "not a saved state of lag" in slave.log[-1]
    assert slave.status("fmi2GetFMUstate", ctypes.byref(memory)) == ERROR
    assert "not a state" in slave.log[-1]
    initialised(slave)
    assert slave.restore(good) == OK


def test_instances_are_independent(binary):
    slaves = [Slave(binary.library, binary.guid) for _ in range(3)]
    for k, slave in enumerate(slaves):
        slave.start(0.0, np.array([float(k)]))
    in_error(slaves[0])
    for slave in slaves[1:]:
        slave.step(0.0, DT)
    assert slaves[1].get(X, 1) < slaves[2].get(X, 1)
    for slave in slaves:
        slave.close()
    slaves[0].on_null("fmi2FreeInstance")


def test_fmpy_meets_a_failed_step(binary):
    """It ends with an exception; a host that does not heed the status of a step gets an error at the next."""
    fmpy = pytest.importorskip("fmpy")
    with pytest.raises(fmpy.fmi1.FMICallException, match="fmi2DoStep"):
        fmpy.simulate_fmu(str(binary.archive), stop_time=1.0, output_interval=DT, start_values={"k": NAN})


def test_the_minimal_host_reports_what_was_logged(slave):
    with pytest.raises(
        HostError, match=r"fmi2DoStep returned 3\. fmi2DoStep is not allowed: the slave is instantiated"
    ):
        slave.step(0.0, DT)
