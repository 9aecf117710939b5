"""The executor for several machines: Ray core. They must share the folders of trials and data.

Ray runs any code that a caller sends it. So authentication by token is always on, and the dashboard, which is not used
here, is off. A cluster started here has its own token, which is never written to disk; for a running cluster, Ray reads
the token from RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH or ~/.ray/auth_token.
"""

import os
import secrets
import time
from importlib.util import find_spec
from typing import Any

from riesz_lab.errors import ConfigError, LabError
from riesz_lab.experiments.running.executor import Ended, available_cores, check_share
from riesz_lab.experiments.running.local import PATIENCE
from riesz_lab.experiments.running.worker import TrialJob, work
from riesz_lab.utils.amounts import count


class RayExecutor:
    def __init__(
        self, workers: int | None = None, threads: int | None = None, *, address: str | None = None, retries: int = 5
    ):
        self.threads = check_share("threads", threads, 1)
        self._workers = check_share("workers", workers, 0)
        self._ray = _import_ray(own=address is None)
        self._connect(address)
        gpus = 1 if self._ray.cluster_resources().get("GPU") else 0
        # A process per trial: the memory it leaves behind must not burden the next.
        self._work = self._ray.remote(num_cpus=self.threads, num_gpus=gpus, max_retries=retries, max_calls=1)(work)
        self._running: dict[Any, str] = {}
        where = f"at {address}" if address else "on this machine"
        self.description = (
            f"Ray {where}: {count(self.slots, 'trial')} at once, {count(self.threads, 'thread')} and "
            f"{count(gpus, 'GPU')} each"
        )

    @property
    def slots(self) -> int:
        """As many as requested, or as the cluster has room for now: machines may come and go."""
        return self._workers or max(1, int(self._ray.cluster_resources().get("CPU", 1)) // self.threads)

    def start(self, job: TrialJob) -> None:
        self._running[self._work.options(name=f"trial {job.id}").remote(job)] = job.id

    def ended(self, timeout: float) -> list[Ended]:
        if not self._running:
            time.sleep(timeout)
            return []
        done, _ = self._ray.wait(list(self._running), num_returns=1, timeout=timeout)
        return [self._end_of(task) for task in done]

    def close(self) -> None:
        for task in self._running:
            # Arrives as an interrupt, upon which the trial is saved.
            self._ray.cancel(task, force=False)
        if self._running:
            self._ray.wait(list(self._running), num_returns=len(self._running), timeout=PATIENCE)
        self._running.clear()
        self._ray.shutdown()

    def _end_of(self, task: Any) -> Ended:
        key = self._running.pop(task)
        try:
            return Ended(key, self._ray.get(task))
        except self._ray.exceptions.RayTaskError as error:
            # `work` records what fails in a trial; this is a worker that could not even begin.
            return Ended(key, "failed", str(error).strip().splitlines()[-1])
        except self._ray.exceptions.RayError as error:
            return Ended(key, "killed", f"Ray lost it: {type(error).__name__}")

    def _connect(self, address: str | None) -> None:
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if address is None:
            room = max(available_cores(), self.threads * (self._workers or 1))
            options |= {"num_cpus": room, "include_dashboard": False}
        try:
            self._ray.init(address=address or "local", **options)
        except (ConnectionError, RuntimeError, ValueError, self._ray.exceptions.RayError) as error:
            raise LabError(f"Ray cannot be reached or started (address={address!r}): {error}") from None


def _import_ray(own: bool) -> Any:
    """Import Ray, with the settings it reads at its first import."""
    if find_spec("ray") is None:
        raise LabError("Ray is not installed: pip install 'riesz[ray]'")
    if os.environ.get("RAY_AUTH_MODE", "token").lower() != "token":
        raise ConfigError(
            f"RAY_AUTH_MODE={os.environ['RAY_AUTH_MODE']!r} would let anyone on the network run code; expected 'token'"
        )
    os.environ["RAY_AUTH_MODE"] = "token"
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if own:
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    import ray

    return ray
