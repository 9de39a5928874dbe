"""axe-core, which finds what hinders users of screen readers and keyboards."""

from pathlib import Path

from training.data.emoji.npm import NpmPackage, fetch, read_members

__all__ = ["axe_source", "violations"]

AXE = NpmPackage(
    "axe-core",
    "4.14.1",
    "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37O"
    "gudVGtQ==",
)


def axe_source(folder: Path) -> str:
    """Fetch axe-core, unless the folder has it, and return its script."""
    return read_members(fetch(AXE, folder))["axe.min.js"].decode()


def violations(page, source: str) -> list[str]:
    """Run all rules of axe-core on what a page shows; a line for each violation."""
    page.evaluate(source)
    found = page.evaluate("async () => (await axe.run()).violations")
    return [
        f"{rule['id']}: {rule['help']}: {node['html'][:200]} {node['failureSummary']}"
        for rule in found
        for node in rule["nodes"]
    ]
