"""Find out from where, and how, npm would fetch a package."""

import configparser
import os
import re
import shutil
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import httpx2

from tfdml.messages import shortened, shown

DEFAULT_REGISTRY = "https://registry.npmjs.org/"
"""The registry of an npm that nobody has set up."""

_PREFIX = "npm_config_"
_LINES = ("_authToken", "_auth")  # of a registry, as `//host/path/:_authToken = ...`


class NpmSettingsError(RuntimeError):
    """npm's settings cannot be used."""


@dataclass(frozen=True)
class NpmSettings:
    """What of npm's settings says how a package is fetched.

    Args:
        values: Each setting by the name that it has in `.npmrc`.
    """

    values: Mapping[str, str] = field(default_factory=dict)

    def registry(self, package: str) -> str:
        """Return the URL of the registry of a package, with a slash at its end.

        Args:
            package: Name with its scope, such as `@iconify-json/noto`.

        Raises:
            NpmSettingsError: It is no URL of HTTP.
        """
        scope = package.partition("/")[0] if package.startswith("@") else ""
        name = f"{scope}:registry" if f"{scope}:registry" in self.values else "registry"
        url = self.values.get(name) or DEFAULT_REGISTRY
        if not re.match(r"https?://[^/]", url):
            raise NpmSettingsError(
                f"npm's setting `{name}` must be a URL of http or https. "
                f"Received: {shown(url)}."
            )
        return url.rstrip("/") + "/"

    def authorization(self, registry: str) -> dict[str, str]:
        """Return the header that a registry asks for; empty without a login."""
        path = re.sub("^https?:", "", registry)
        while path.strip("/"):
            for line, kind in zip(_LINES, ("Bearer", "Basic"), strict=True):
                if secret := self.values.get(f"{path}:{line}"):
                    return {"Authorization": f"{kind} {secret}"}
            path = path.rstrip("/").rpartition("/")[0] + "/"
        return {}

    @property
    def retries(self) -> int:
        """How often a request is made again."""
        return round(self._number("fetch-retries", 2))

    @property
    def timeout(self) -> float:
        """How many seconds the registry may be silent."""
        return min(self._number("fetch-timeout", 30_000) / 1000, 300.0)

    def _trust(self) -> ssl.SSLContext:
        """Return which certificates are trusted: the system's, and those of `cafile`.

        Raises:
            NpmSettingsError: `cafile` cannot be read.
        """
        context = ssl.create_default_context()
        for name, path in (
            ("cafile", self.values.get("cafile")),
            ("NODE_EXTRA_CA_CERTS", os.environ.get("NODE_EXTRA_CA_CERTS")),
        ):
            try:
                if path:
                    context.load_verify_locations(path)
            except OSError as error:  # SSLError is one
                raise NpmSettingsError(
                    f"npm's setting `{name}` must name a file of certificates. "
                    f"Received: {shown(path)} ({shortened(error)})."
                ) from None
        if self.values.get("strict-ssl") == "false":
            # What comes is compared with a pinned digest all the same.
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def client(self) -> httpx2.Client:
        """Return what makes requests as npm would.

        Raises:
            NpmSettingsError: The proxy is no URL, or `cafile` cannot be read.
        """
        trust = self._trust()
        proxy = self.values.get("https-proxy") or self.values.get("proxy") or None
        try:
            return httpx2.Client(
                verify=trust,
                proxy=proxy,
                timeout=self.timeout,
                follow_redirects=True,
            )
        except (ValueError, httpx2.InvalidURL):
            raise NpmSettingsError(
                "npm's setting `proxy` must be a URL of http or https. "
                f"Received: {shown(proxy)}."
            ) from None

    def _number(self, name: str, default: float) -> float:
        text = self.values.get(name, "")
        if text and not text.isdecimal():
            raise NpmSettingsError(
                f"npm's setting `{name}` must be a whole number. "
                f"Received: {shown(text)}."
            )
        return float(text or default)


def read_npm_settings() -> NpmSettings:
    """Read what npm is set up for: its environment, the user's file, the system's.

    These are the variables `npm_config_...`, `~/.npmrc` and `etc/npmrc` below where
    Node is installed (or `/etc/npmrc`), as far as they are there; the first that has a
    setting decides.

    Raises:
        NpmSettingsError: A file cannot be read.
    """
    own = dict(_of_environment())
    user = own.get("userconfig") or Path.home() / ".npmrc"
    system = [Path(own["globalconfig"])] if "globalconfig" in own else _system()
    values: dict[str, str] = {}
    for path in (*reversed(system), Path(user)):
        values |= _of_file(path)
    return NpmSettings(values | own)


def _of_environment() -> Iterator[tuple[str, str]]:
    for variable, value in os.environ.items():
        if variable.lower().startswith(_PREFIX) and value:
            name = variable[len(_PREFIX) :]
            if not name.startswith(("//", "@")):
                name = name.lower().replace("_", "-")
            yield name, value


def _system() -> list[Path]:
    """Return where npm's system-wide file may be, the likeliest first."""
    folders = [Path("/etc"), Path("/usr/local/etc"), Path("/usr/etc")]
    if node := shutil.which("node"):
        folders.insert(0, Path(node).resolve().parents[1] / "etc")
    if data := os.environ.get("APPDATA"):
        folders.insert(0, Path(data, "npm", "etc"))
    return [folder / "npmrc" for folder in folders]


def _of_file(path: Path) -> dict[str, str]:
    parser = configparser.ConfigParser(
        delimiters=("=",), interpolation=None, strict=False, allow_no_value=True
    )
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    try:
        parser.read_string("[npm]\n" + path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeError, configparser.Error) as error:
        raise NpmSettingsError(
            f"npm's settings in {path} cannot be read: {shortened(error)}"
        ) from None
    return {
        name: _expanded(value.strip().strip("\"'"))
        for name, value in parser["npm"].items()
        if value is not None
    }


def _expanded(text: str) -> str:
    """Put variables of the environment in place of `${NAME}`."""
    return re.sub(r"\$\{([^}]+)\}", lambda name: os.environ.get(name[1], name[0]), text)
