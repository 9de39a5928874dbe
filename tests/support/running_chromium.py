"""Chromium without a window, to look at pages in a test."""

import contextlib
import os
import shutil

import pytest
from playwright.sync_api import sync_playwright

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextlib.contextmanager
def chromium():
    """Run Chromium; where it is not installed, the test is skipped, but not in CI."""
    executable = shutil.which("chromium") or shutil.which("chromium-browser")
    if executable is None:
        message = "Pages are tested in Chromium: apt-get install chromium"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        yield browser
        browser.close()
