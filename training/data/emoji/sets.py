"""List the sets of emoji drawings, with source and license."""

from dataclasses import dataclass

from .npm import NpmPackage


@dataclass(frozen=True)
class EmojiSet:
    """One set of drawings and where it comes from.

    Args:
        package: The npm package.
        name: Name of the set, and of its files.
        family: Design family; two sets of one family are drawn after one design.
        license: SPDX identifier of the license of the drawings.
        author: Whom to name.
        source: Where the drawings are published.
    """

    package: NpmPackage
    name: str
    family: str
    license: str
    author: str
    source: str


def _iconify(name: str, version: str, sha512: str, **about: str) -> EmojiSet:
    about.setdefault("family", name)
    return EmojiSet(NpmPackage(f"@iconify-json/{name}", version, sha512), name, **about)


EMOJI_SETS = (
    _iconify(
        "noto",
        "1.2.9",
        "DQiuXENbun41ch+XPSV55H9FaWKpHTyz46YIKtSaKYD4fIDDzL1tR6H4np/T38jf"
        "rTAeI3rcKF0mqHYeZVAuaw==",
        license="Apache-2.0",
        author="Google Inc",
        source="https://github.com/googlefonts/noto-emoji",
    ),
    _iconify(
        "noto-v1",
        "1.2.5",
        "/DsVMius69Q0fRS53z7QK1TROSuar606jiIx+laXtdsYGMXpf6LtHBx6CGfoo3UH"
        "Hb/XpBsw+1L1x3eyPqMuVA==",
        license="Apache-2.0",
        author="Google Inc",
        source="https://github.com/googlefonts/noto-emoji",
    ),
    _iconify(
        "twemoji",
        "1.2.5",
        "uKpuIEV0v6K5BW3Mjdyl+XKFVAbbcPxAgifKvEMtZoUZB5+YiY5zaMm2uNNCxyXz"
        "AWU9yNLlj41WU6/mvgALsw==",
        license="CC-BY-4.0",
        author="Twitter, Inc and other contributors",
        source="https://github.com/jdecked/twemoji",
    ),
    _iconify(
        "emojione",
        "1.2.3",
        "T9+T3HIbJNLKKsmxYKlaYhvnHYkz/HNYTV7SHCXVZPfeUi4FqskY70YeN8yYAZT8"
        "cCv7w5vJxS4Q1m8zb9CMMg==",
        license="CC-BY-4.0",
        author="EmojiOne (version 2, kept up as EmojiTwo)",
        source="https://github.com/EmojiTwo/emojitwo",
    ),
    _iconify(
        "fxemoji",
        "1.2.2",
        "UAasRaxzFUKfIGSmLwnoarsssA4LX0VLLuEmplIqM6ZNQqIQRtav8tZ4H1neTlBr"
        "eXuMQyAifr5jP4kn78DpiQ==",
        license="Apache-2.0",
        author="Mozilla",
        source="https://github.com/mozilla/fxemoji",
    ),
    _iconify(
        "fluent-emoji-flat",
        "1.2.6",
        "RY47RgPb47fYUiyrA64sIOL0+UU02s29sXpNBbIQRBUlPlfNFTKUmZDERGuxDs/7"
        "yNGWqQYvuaSYM1M4fRXlUw==",
        family="fluent",
        license="MIT",
        author="Microsoft Corporation",
        source="https://github.com/microsoft/fluentui-emoji",
    ),
    _iconify(
        "streamline-emojis",
        "1.2.4",
        "iNr9T9XuZVTyQPJO8ZlLxBzPkpi7qMl+z1l0C31vpEMqhPMelth3n7CeWQYtixde"
        "tDPdI81yeG4ROqjWpYJE6A==",
        license="CC-BY-4.0",
        author="Streamline",
        source="https://github.com/webalys-hq/streamline-vectors",
    ),
    EmojiSet(
        NpmPackage(
            "@lobehub/fluent-emoji-3d",
            "1.1.0",
            "Wlq2lVStTnr8BDpIJ0pEnTKO4LuDxxqTEhTvRtD1DLRF0me7ogeRQjKoehDHXuVJ"
            "2Qaecgl5wRBv60lUAG3h7g==",
        ),
        "fluent-emoji-3d",
        family="fluent",
        license="MIT",
        author="Microsoft Corporation",
        source="https://github.com/microsoft/fluentui-emoji",
    ),
)
"""The sets that may be used without sharing alike."""
