"""Load the models of a server, swap their versions and change them while it runs.

A new version is loaded and warmed up beside the old one, which is unloaded only when
the new one answers and the last request of the old one has ended. A version that
cannot be loaded never takes the place of one that can.
"""

import gc
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from ...web.status import StatusCode, StatusError
from .config import ModelConfig, unique_by_name
from .fingerprint import load_checked
from .loader import VersionLoader
from .places import ModelPlaces
from .plan import (
    ModelPlan,
    check_labels,
    no_version_text,
    plan_model,
    plan_or_refuse,
    versions_to_unload,
)
from .servable import Servable
from .served import ServedModels
from .version_states import VersionState, VersionStatus

_log = logging.getLogger(__name__)


class WatchedModels:
    """Keeps the versions in memory equal to those that configuration and disk want.

    Loading runs in the thread of its own, or in that of `start` and `reload`, never
    in that of a request. One version is loaded at a time. A swap takes the memory of
    one more version; `reload` that of all new ones, since it is all or nothing.

    From `start` to `close`, Python's garbage collector passes over the objects that
    were there before: it has to run whenever a version is unloaded, and would hold up
    all requests for the time that it takes to visit those of TensorFlow.

    Attributes:
        served: The table that requests read.

    Args:
        configs: The models.
        poll_seconds: Seconds between two looks at the base paths, at least 0; 0 looks
            at them only in `start` and `reload`.
        load: Loads a version from its name, number and folder; by default one whose
            files are those that were exported.
        warm_up: Is given each loaded version and its folder; raises if it does not
            work, and returns how many requests it has answered; by default nothing is
            asked.
        on_warmed_up: Is called with folder, seconds and error (None if it succeeded) of
            each warm-up that had requests.
        load_retries: How often a version that could not be loaded is tried again, at
            least 0. Count and wait start over when its files change.
        load_retry_seconds: Seconds before each further try, at least 0.
        places: Where the base paths lie on this machine; `close` closes it.

    Raises:
        ValueError: An argument is out of range, or two models have the same name.
    """

    def __init__(
        self,
        configs: Iterable[ModelConfig],
        *,
        poll_seconds: float = 1.0,
        load: Callable[[str, int, Path], Servable] = load_checked,
        warm_up: Callable[[Servable, Path], int] = lambda servable, folder: 0,
        on_warmed_up: Callable[[Path, float, str | None], None] | None = None,
        load_retries: int = 5,
        load_retry_seconds: float = 60.0,
        places: ModelPlaces | None = None,
    ) -> None:
        for name, value in {
            "poll_seconds": poll_seconds,
            "load_retries": load_retries,
            "load_retry_seconds": load_retry_seconds,
        }.items():
            if value < 0:
                raise ValueError(f"`{name}` must be at least 0. Received: {value}.")
        self.served = ServedModels()
        self._configs = unique_by_name(configs)
        self._poll_seconds = poll_seconds
        self._places = ModelPlaces() if places is None else places
        self._loader = VersionLoader(
            self.served, load, warm_up, on_warmed_up, load_retries, load_retry_seconds
        )
        # Held while versions are loaded and configurations change; never by requests.
        self._work = threading.Lock()
        self._wake = threading.Event()
        self._is_started = False
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self._loaded: dict[str, dict[int, Path]] = {}
        self._warned: dict[str, str] = {}
        self._set_configs(self._configs)
        self.served.call_when_idle(self._wake.set)

    def start(self) -> None:
        """Load the models and return when each has an available version.

        A version that cannot be loaded does not end the start if its model has
        another one that the policy wants. Where the latest versions are wanted and
        none of them can be loaded, the newest one that can serves until one of them
        can: a server that is started again must not stop serving because a broken
        version has come meanwhile. Nothing is tried twice: a person or a supervisor
        waits for the answer.

        Raises:
            FileNotFoundError: A base path does not exist, or holds no version that the
                policy wants.
            ValueError: No version of a model that may serve can be loaded, or a label
                points at a version that is not available.
            RuntimeError: It has been started or closed before.
        """
        with self._work:
            if self._is_started or self._is_closed:
                raise RuntimeError("`start` must be called once, and before `close`.")
            self._is_started = True
            set_objects_aside()
            try:
                plans = {
                    name: plan_or_refuse(
                        config, self._loaded.get(name, {}), self._places.brought
                    )
                    for name, config in self._configs.items()
                }
            except StatusError as error:
                raise FileNotFoundError(f"{error.message}.") from error
            for name, plan in plans.items():
                for version in plan.to_load:
                    self.served.set_state(
                        name, VersionStatus(version, VersionState.START)
                    )
            for name, plan in plans.items():
                loaded = self._loader.load_first(self._configs[name], plan)
                self._publish(loaded, plan.folders)
            self._thread = threading.Thread(
                target=self._run, name="watched-models", daemon=True
            )
            self._thread.start()
            self._places.start(self._poll_seconds)

    def reload(self, configs: Iterable[ModelConfig]) -> None:
        """Change the models to these and wait until their versions are available.

        All or nothing: if anything fails, everything stays as it was. A model whose
        base path and policy stay the same can fail by its labels only.

        Args:
            configs: All models. One that is not among them is unloaded.

        Raises:
            StatusError: It cannot be done, with TF Serving's text where it has one.
        """
        try:
            new = unique_by_name(configs)
        except ValueError as error:
            raise StatusError(StatusCode.INVALID_ARGUMENT, str(error)) from error
        # Before the lock, which `start` holds until the models are there.
        if self._thread is None:
            raise StatusError(StatusCode.UNAVAILABLE, "The server is starting. Retry.")
        with self._work:
            if self._is_closed:
                raise StatusError(StatusCode.UNAVAILABLE, "The server is stopping.")
            try:
                self._change(new)
            finally:
                self._wake.set()

    def poll_now(self) -> None:
        """Look at all base paths once, and load and unload what that calls for.

        A version is loaded when its files have not changed since the look before, so
        that a copy in progress is left alone.
        """
        with self._work:
            self._poll()
        self._collect()

    def close(self, seconds: float | None = None) -> None:
        """Stop watching, and wait for a version that is being loaded.

        What is available stays so, for the requests that are still answered.

        Args:
            seconds: How long to wait, at least 0; None until it has been loaded.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(seconds)
        self._places.close()
        if self._is_started:
            gc.unfreeze()

    def _run(self) -> None:
        next_poll = time.monotonic() + self._poll_seconds
        while not self._is_closed:
            self._wake.wait(
                max(next_poll - time.monotonic(), 0.0) if self._poll_seconds else None
            )
            self._wake.clear()
            try:
                if self._poll_seconds and time.monotonic() >= next_poll:
                    next_poll = time.monotonic() + self._poll_seconds
                    # While another thread reloads, idle versions still have to go.
                    if self._work.acquire(blocking=False):
                        try:
                            self._poll()
                        finally:
                            self._work.release()
                self._collect()
            except Exception:  # the models must be looked after as long as they serve
                _log.exception("Looking after the models failed.")

    def _change(self, new: dict[str, ModelConfig]) -> None:
        plans = {
            name: plan_or_refuse(
                config, self._loaded.get(name, {}), self._places.brought
            )
            for name, config in new.items()
            if not self._keeps_versions(config)
        }
        for name, config in new.items():
            reachable = self.served.available_versions(name)
            if name in plans:
                reachable &= plans[name].wanted
                reachable |= set(plans[name].to_load)
            check_labels(config, reachable)
        staged = self._loader.load_all(plans, self._configs.keys())
        # In this order each label points at an available version all the time.
        for name, plan in plans.items():
            self._publish(staged[name], plan.folders)
        removed = self._configs.keys() - new.keys()
        self._set_configs(new)
        for name, plan in plans.items():
            self._unload(name, plan)
        for name in removed:
            self._unload(name, ModelPlan({}, set(), set(), []))
            self._loader.forget_others(name, set())
            self._warned.pop(name, None)

    def _poll(self) -> None:
        for name, config in self._configs.items():
            if self._is_closed:
                return
            try:
                plan = plan_model(
                    config, self._loaded.get(name, {}), self._places.current
                )
            except OSError as error:
                self._warn(name, f"Model {name} stays as it is: {error}")
                continue
            if plan.wanted:
                self._warned.pop(name, None)
            else:
                self._warn(name, no_version_text(config))
            for version in plan.to_load:
                if self._loader.is_due(name, version, plan.folders[version]):
                    loaded, _ = self._loader.load_several(name, [version], plan.folders)
                    self._publish(loaded, plan.folders)
            self._unload(name, plan)
            folders = {plan.folders[version] for version in plan.wanted}
            self._loader.forget_others(name, folders)

    def _publish(
        self, servables: Iterable[Servable], folders: Mapping[int, Path]
    ) -> None:
        for servable in servables:
            name, version = servable.name, servable.version
            self.served.make_available(servable)
            self._loaded.setdefault(name, {})[version] = folders[version]
            _log.info(
                "Version %d of model %s is available (fingerprint %s).",
                version,
                name,
                servable.fingerprint or "not read",
            )

    def _unload(self, name: str, plan: ModelPlan) -> None:
        available = self.served.available_versions(name)
        for version in versions_to_unload(
            available, plan.expected, plan.folders.keys()
        ):
            self.served.unload(name, version)
            del self._loaded[name][version]
            _log.info("Version %d of model %s takes no more requests.", version, name)

    def _collect(self) -> None:
        """Free the memory of what nobody uses any more."""
        servables = self.served.collect_idle()
        is_garbage = self._loader.take_garbage() or bool(servables)
        while servables:
            servable = servables.pop()
            _log.info(
                "Version %d of model %s is unloaded.", servable.version, servable.name
            )
            del servable
        if is_garbage:
            # TensorFlow's graphs and variables refer to each other in circles.
            gc.collect()

    def _keeps_versions(self, config: ModelConfig) -> bool:
        old = self._configs.get(config.name)
        return old is not None and (old.base_path, old.policy) == (
            config.base_path,
            config.policy,
        )

    def _set_configs(self, configs: dict[str, ModelConfig]) -> None:
        self._configs = configs
        self._places.follow(configs.values())
        self.served.configure({name: config.labels for name, config in configs.items()})

    def _warn(self, name: str, text: str) -> None:
        """Log a warning about a model, but not at every look."""
        if self._warned.get(name) != text:
            self._warned[name] = text
            _log.warning("%s", text)


def set_objects_aside() -> None:
    """Leave the garbage collector only the objects that will come.

    TensorFlow brings several hundred thousand. Visiting them takes tenths of a second,
    during which no other thread runs. `gc.unfreeze` takes this back.
    """
    import tensorflow  # noqa: F401  # its objects are nearly all of them

    gc.freeze()
