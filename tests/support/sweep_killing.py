"""Run a sweep of 30 short trials while its workers are killed at random and its driver twice.

    python tests/support/sweep_killing.py EXECUTOR FOLDER [WORKER_KILLS DRIVER_KILLS SWEEP]

With the executor "nodes" it is Ray with a second node on this machine, which is killed with all that runs on it. A kill
is a SIGKILL. What must hold is read from the trials' directories alone. Prints a JSON line.
"""

import contextlib
import hashlib
import json
import os
import random
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil

HERE = Path(__file__).parent


def start(executor, folder, sweep, *more):
    command = [sys.executable, "-m", "riesz_lab", "sweep", f"sweep_helpers:{sweep}", "--executor", executor]
    command += ["--threads", "1", "--runs", str(folder), "--save-every", "0.2", "--progress", "plain"]
    command += more or ("--workers", "3")
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": f"{HERE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
    }
    log = open(folder / "driver.log", "a")  # noqa: SIM115 - the child's
    return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)


def training(folder):
    """Processes that are in the midst of a trial, by the locks of the trials."""
    found = []
    for lock in folder.glob("*/*/lock"):
        owner = re.match(r"process (\d+) on", lock.read_text())
        if owner and not (lock.parent / "result.json").exists() and (lock.parent / "history.jsonl").exists():
            found.append(int(owner[1]))
    return [pid for pid in found if psutil.pid_exists(pid)]


def victim(pid, chance):
    """The trial's own process, or now and then the server that it was forked from."""
    parent = psutil.Process(pid).parent()
    is_server = parent is not None and "multiprocessing.forkserver" in " ".join(parent.cmdline())
    return parent.pid if is_server and chance.random() < 0.3 else pid


def second_node(folder, sweep="thirty"):
    """A head and a second node; the second one is killed as soon as it trains and some trials are complete."""
    folder.mkdir(parents=True, exist_ok=True)
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_USAGE_STATS_ENABLED": "0"}
    os.environ["PYTHONPATH"] = f"{HERE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    ray = [str(Path(sys.executable).with_name("ray")), "start", "--block", "--num-cpus=2", "--disable-usage-stats"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    log = open(folder / "ray.log", "a")  # noqa: SIM115 - the children's
    port = address.partition(":")[2]
    begin = [*ray, "--head", "--node-ip-address=127.0.0.1", f"--port={port}", "--include-dashboard=false"]
    head = subprocess.Popen(begin, stdout=log, stderr=log)
    time.sleep(12)
    second = subprocess.Popen([*ray, f"--address={address}"], stdout=log, stderr=log)
    driver = start("ray", folder, sweep, "--address", address, "--workers", "4")
    try:
        deadline, killed = time.monotonic() + 600, 0
        while driver.poll() is None and time.monotonic() < deadline:
            time.sleep(0.2)
            tree = [] if killed else psutil.Process(second.pid).children(recursive=True)
            busy = training(folder)
            trains = [one for one in tree if one.pid in busy]
            if trains and len(complete(folder)) >= 5:
                # The raylet alone: its workers notice, as they do when a machine is cut off.
                (raylet,) = [one for one in tree if one.is_running() and one.name() == "raylet"]
                raylet.kill()
                killed = len(trains)
        assert driver.wait(60) == 0, (folder / "driver.log").read_text()
        assert killed, "the second node was never at work"
        print(json.dumps({"nodes": 1, "trials on it": killed, **account(folder)}))
    finally:
        driver.kill()
        for node in (second, head):
            for one in [*psutil.Process(node.pid).children(recursive=True), psutil.Process(node.pid)]:
                one.kill()
            node.wait()


def complete(folder):
    return list(folder.glob("*/*/result.json"))


def main(executor, folder, worker_kills=10, driver_kills=2, sweep="thirty"):
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(0)
    killed = {"workers": 0, "drivers": 0}
    seen = {}
    driver = start(executor, folder, sweep)
    deadline = time.monotonic() + 900
    while time.monotonic() < deadline:
        for file in complete(folder):
            state = (file.stat().st_ino, file.stat().st_mtime_ns, hashlib.sha256(file.read_bytes()).hexdigest())
            assert seen.setdefault(file, state) == state, f"{file} was written again"
        if driver.poll() is not None and (driver.returncode == 0 or killed["drivers"] == driver_kills):
            break
        time.sleep(chance.uniform(0.1, 0.8))
        alive = training(folder)
        # Drivers are killed in the midst of it: after a third and two thirds of the workers' kills.
        due = worker_kills * (killed["drivers"] + 1) // (driver_kills + 1)
        if killed["drivers"] < driver_kills and killed["workers"] >= due and alive and complete(folder):
            driver.kill()
            driver.wait()
            killed["drivers"] += 1
            driver = start(executor, folder, sweep)
        elif killed["workers"] < worker_kills and alive:
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                os.kill(victim(chance.choice(alive), chance), signal.SIGKILL)
                killed["workers"] += 1
    assert driver.wait(60) == 0, (folder / "driver.log").read_text()
    print(json.dumps({**killed, **account(folder)}))


def account(folder):
    """What the directories say: how many trials, how many are complete, how often each was completed."""
    trials = [file.parent for file in folder.glob("*/*/config.json")]
    completed = []
    for path in trials:
        file = path / "sessions.jsonl"
        events = [json.loads(line)["event"] for line in file.read_text().splitlines()] if file.exists() else []
        completed.append(events.count("completed"))
    return {
        "trials": len(trials),
        "results": len(complete(folder)),
        # A worker killed between its result and this line leaves none; one that repeats a trial would leave two.
        "completed at most once": max(completed) <= 1,
        "recorded completions": sum(completed),
        "left over": sum(bool(list(path.glob("checkpoints"))) for path in trials),
    }


if __name__ == "__main__":
    given = sys.argv[1:]
    if given[0] == "nodes":
        second_node(Path(given[1]))
    else:
        main(given[0], Path(given[1]), *map(int, given[2:4]), *given[4:5])
