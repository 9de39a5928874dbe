"""Run the losses of peers, each case in a process of the peer's own interpreter."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PEERS = {
    "pml": "pytorch-metric-learning 2.9.0",
    "tfa": "tensorflow-addons 0.23.0",
}
LIMIT_SECONDS = 60
LIMIT_GIGABYTES = 14
_OUT_OF_MEMORY = re.compile(
    r"bad_alloc|can't allocate memory|not enough memory|MemoryError"
    r"|OOM|Out of memory|RESOURCE_EXHAUSTED|ResourceExhausted|Cannot allocate"
)


def missing_peers() -> list[str]:
    """Name the peers that have no virtual environment."""
    return [peer for peer in PEERS if not _interpreter(peer).exists()]


def measured_peer(
    peer: str, case: str, batch: int, dimension: int, seconds: float
) -> dict[str, Any]:
    """Time a case of a peer.

    Returns:
        `peer`, `peer_case`, and either `peer_ms` with its `mode` (the fastest of those
        the peer has), or `peer_over`, the limit that it ran into, or `error`.
    """
    command = [
        *(str(_interpreter(peer)), "-m", f"benchmarks.peer_{peer}"),
        *(case, str(batch), str(dimension), "--seconds", str(seconds)),
        *("--limit-seconds", str(LIMIT_SECONDS)),
        *("--limit-gigabytes", str(LIMIT_GIGABYTES)),
    ]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    environment.pop("KERAS_BACKEND", None)
    run = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    modes = [json.loads(line) for line in run.stdout.splitlines() if line[:1] == "{"]
    result: dict[str, Any] = {"peer": PEERS[peer], "peer_case": case}
    if modes:
        fastest = min(modes, key=lambda mode: mode["ms"])
        return {**result, "peer_ms": fastest["ms"], "mode": fastest["mode"]}
    if run.returncode == -signal.SIGALRM:
        return {**result, "peer_over": f"{LIMIT_SECONDS} s"}
    if run.returncode == -signal.SIGKILL or _OUT_OF_MEMORY.search(run.stderr):
        return {**result, "peer_over": f"{LIMIT_GIGABYTES} GB"}
    last = (run.stderr.strip().splitlines() or [f"exit status {run.returncode}"])[-1]
    return {**result, "error": last[:300]}


def _interpreter(peer: str) -> Path:
    return ROOT / ".peers" / peer / "bin" / "python"
