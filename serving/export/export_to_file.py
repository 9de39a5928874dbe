"""Export a run as one file for another runtime than TensorFlow."""

from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from tfdml.export import FileFormat
from tfdml.run_calibration import read_calibration
from tfdml.run_view import view_of_run

from .exporting import NO_RECIPE, NO_THRESHOLD, embedder_file, is_cut, source_of


@dataclass(frozen=True)
class FileReport:
    """The result of an export to a file; as text, a summary.

    Args:
        source: The `.keras` file.
        file: What was written; `FILE.json` beside it describes it.
        bytes: Size of the file.
        warnings: What a person should know, a sentence or two each.
    """

    source: Path
    file: Path
    bytes: int
    warnings: tuple[str, ...]

    def __str__(self) -> str:
        """Return the report in a line, without the warnings."""
        return (
            f"Exported {self.source} to {self.file} ({self.bytes / 1e6:.1f} MB), "
            f"described by {self.file.name}.json."
        )


def export_run_to_file(
    run: str | PathLike[str],
    file: str | PathLike[str],
    format: FileFormat,  # noqa: A002
    *,
    dimensions: int | None = None,
) -> FileReport:
    """Export the embedder of a run as ONNX or LiteRT, with its description.

    Args:
        run: Run folder, or a `.keras` file.
        file: Where it goes; its name ends in `.onnx` or `.tflite`. It must not exist.
        format: `"onnx"` or `"litert"`.
        dimensions: As of `export_run`.

    Returns:
        The report.

    Raises:
        FileExistsError: The file exists.
        ImportError: A package of the format is missing.
        ValueError: There is no embedder, its calibration is that of another one, or the
            file has another ending.
        RuntimeError: The embedder cannot be converted, or the file answers otherwise.
    """
    source = embedder_file(run)
    from tfdml.export import export_file
    from tfdml.models import load_embedder

    calibration = read_calibration(source)
    embedder = load_embedder(source)
    view = view_of_run(source.parent, embedder.input_shape[1])
    warnings = []
    if not (source.parent / "recipe.json").is_file():
        warnings.append(NO_RECIPE)
    if calibration is not None and is_cut(embedder, dimensions):
        calibration = None
        warnings.append(NO_THRESHOLD)
    known = None if calibration is None else calibration.to_json()
    members = {"source": source_of(source), "calibration": known}
    export_file(
        embedder, file, view, format=format, dimensions=dimensions, members=members
    )
    return FileReport(source, Path(file), Path(file).stat().st_size, tuple(warnings))
