"""Tasks on Dask: the same outcomes as in one process, whatever dies on the way."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

import twinfold as tw
from twinfold.parallel import DaskExecutor, InProcess, map_tasks, report_progress, select_executor
from twinfold.parallel._worker import gpu_of, pickled

SUPPORT = """
import os, time
from pathlib import Path
from twinfold.parallel import report_progress


def reciprocal(task):
    report_progress(0.5, f"task {task}")
    return 1 / task


def dies(task):
    folder, name, times = task
    count = len(list(Path(folder).glob(f"{name}.*")))
    if count < times:
        Path(folder, f"{name}.{count}").touch()
        os.kill(os.getpid(), 9)
    return name


def slow(task):
    steps = 0
    try:
        for steps in range(200):
            report_progress(steps / 200, str(task))
            time.sleep(0.05)
    except KeyboardInterrupt:
        pass
    return steps
"""


@pytest.fixture(scope="module")
def functions(tmp_path_factory):
    """A module that workers can import: they inherit `sys.path`, and pytest's own modules are not on it."""
    folder = tmp_path_factory.mktemp("functions")
    (folder / "worker_functions.py").write_text(SUPPORT)
    sys.path.insert(0, str(folder))
    import worker_functions  # pyright: ignore[reportMissingImports]

    yield worker_functions
    sys.path.remove(str(folder))


def test_the_executor_follows_from_the_options():
    assert select_executor() == InProcess()
    assert select_executor(2) == DaskExecutor(2, "")
    assert select_executor(1, "tcp://host:1") == DaskExecutor(1, "tcp://host:1")
    with pytest.raises(ValueError, match="workers=0"):
        select_executor(0)


def test_each_worker_has_a_gpu_of_its_own_unless_the_user_has_chosen():
    assert [gpu_of(name, 2, {}).get("CUDA_VISIBLE_DEVICES") for name in (0, 1, 2)] == ["0", "1", "0"]
    assert gpu_of(0, 0, {}) == {}
    assert gpu_of(0, 2, {"CUDA_VISIBLE_DEVICES": "1"}) == {}


def test_progress_inside_of_tasks_counts_by_their_cost():
    lines = []

    def fn(task):
        report_progress(0.5, "half")

    map_tasks(fn, [1.0, 3.0], cost=float, progress=lambda fraction, text: lines.append(fraction))
    assert lines == [0.0, 3 / 8, 3 / 4, 7 / 8, 1.0]


def test_functions_of_a_module_that_cannot_be_imported_travel_with_it():
    """As those of a system.py, which is run and not imported."""
    import types

    module = types.ModuleType("not_a_file")
    module.__file__ = "somewhere.py"
    exec("scale = 3.0\ndef fn(x):\n    return scale * x\n", module.__dict__)
    sys.modules["not_a_file"] = module
    try:
        data = pickled(module.fn)
    finally:
        del sys.modules["not_a_file"]
    import pickle

    assert pickle.loads(data)(2.0) == 6.0


@pytest.mark.slow
def test_two_workers_return_what_one_process_returns(functions):
    tasks = [4, 0, 2, 8, 1]
    one = map_tasks(functions.reciprocal, tasks)
    two = map_tasks(functions.reciprocal, tasks, executor=DaskExecutor(2), progress=lambda fraction, text: None)
    assert [(each.value, each.reason) for each in one.outcomes] == [(each.value, each.reason) for each in two.outcomes]
    assert two.outcomes[1].reason == "ZeroDivisionError: division by zero"
    assert not two.interrupted


@pytest.mark.slow
def test_a_task_whose_worker_dies_is_tried_again_a_few_times(functions, tmp_path):
    tasks = [(str(tmp_path), "never", 0), (str(tmp_path), "twice", 2), (str(tmp_path), "always", 100)]
    report = map_tasks(functions.dies, tasks, executor=DaskExecutor(2))
    assert [outcome.value for outcome in report.outcomes] == ["never", "twice", None]
    assert report.outcomes[2].reason == "its worker died 4 times: killed, or out of memory"
    # Dask also counts the deaths of a worker for which it had only been waiting: it need not have begun four times.
    assert 1 <= len(list(tmp_path.glob("always.*"))) <= 4
    assert len(list(tmp_path.glob("twice.*"))) == 2


@pytest.mark.slow
def test_ctrl_c_reaches_the_tasks_and_keeps_what_they_return(tmp_path):
    """The whole process group gets the signal, as in a terminal."""
    script = tmp_path / "script.py"
    script.write_text(
        SUPPORT
        + textwrap.dedent("""
        from twinfold.parallel import DaskExecutor, map_tasks

        if __name__ == "__main__":
            report = map_tasks(slow, [1, 2, 3, 4], executor=DaskExecutor(2),
                               progress=lambda fraction, text: print("at", text, flush=True))
            print("values", [0 < outcome.value < 199 for outcome in report.outcomes], report.interrupted)
        """)
    )
    process = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    seen = ""
    while not (", 1\n" in seen and ", 2\n" in seen):  # both tasks are running
        seen += process.stdout.readline()
    time.sleep(1)
    os.killpg(process.pid, signal.SIGINT)
    assert "values [True, True] True" in process.communicate(timeout=60)[0]


@pytest.mark.slow
def test_a_scheduler_that_is_restarted_gets_what_is_missing(functions, tmp_path):
    address, command = "tcp://127.0.0.1:18741", Path(sys.executable).with_name("dask")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}

    def start() -> list[subprocess.Popen]:
        options = {"stderr": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "env": environment}
        scheduler = [command, "scheduler", "--host", "127.0.0.1", "--port", "18741", "--no-dashboard"]
        worker = [command, "worker", address, "--nworkers", "2", "--nthreads", "1", "--no-dashboard"]
        return [subprocess.Popen(each, **options) for each in (scheduler, [*worker, "--death-timeout", "5"])]

    processes, done = start(), []

    def kill_once(outcome) -> None:
        done.append(outcome.task)
        if len(done) == 2:
            processes[0].kill()
            processes[0].wait()
            processes.extend(start())

    try:
        tasks = list(range(1, 9))
        report = map_tasks(functions.reciprocal, tasks, executor=DaskExecutor(2, address), done=kill_once)
        assert [outcome.value for outcome in report.outcomes] == [1 / task for task in tasks]
        assert sorted(done) == tasks  # each once
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_seeds_of_two_workers_are_those_of_one_process(tmp_path):
    """A network and a parameter; scores and parameters of every seed, up to the rounding of other batch sizes."""
    ts = np.linspace(0, 2, 21)
    data = tw.Dataset.from_arrays(ts, [np.exp(-k * ts)[:, None] for k in (0.5, 0.7)])
    twin = tw.Twin(
        tw.GreyBox(lambda x, p: -p["k"] * x, residual=tw.MLP(width=4, depth=1)),
        params={"k": tw.Unknown(1.0, positive=True)},
    )
    stages = (tw.Adam(20), tw.LevenbergMarquardt(4))
    options = {"seeds": 5, "method": stages, "progress": False}
    one = tw.fit(twin, data, **options)
    two = tw.fit(twin, data, **options, workers=2, checkpoint=tmp_path / "fit")
    assert two.seeds == one.seeds
    np.testing.assert_allclose(two.scores, one.scores, rtol=1e-6)
    for index in range(5):
        np.testing.assert_allclose(
            two.twin_of(index).parameters()["k"], one.twin_of(index).parameters()["k"], rtol=1e-6
        )
    np.testing.assert_allclose(two.history["loss"], one.history["loss"], rtol=1e-5)
    assert [each.name for each in tmp_path.iterdir()] == ["fit"]  # one checkpoint of all seeds
    again = tw.fit(twin, data, **options, checkpoint=tmp_path / "fit")
    np.testing.assert_array_equal(again.scores, two.scores)
    (tmp_path / "fit").rename(tmp_path / "fit.0-of-3")
    with pytest.raises(ValueError, match="workers=3"):
        tw.fit(twin, data, **options, checkpoint=tmp_path / "fit")
