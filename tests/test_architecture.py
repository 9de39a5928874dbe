"""Hold the rules that keep the rooms findable, as CONTRIBUTING.md states them."""

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("tfdml", "training", "serving", "benchmarks")

# The rooms of each package, from the bottom up: a room imports those of earlier lines.
# Rooms of one line do not import each other.
FLOORS = {
    "tfdml": """
        messages progress
        quiet
        _version _registration _missing_packages
        _core files text_files command_parser pillow_limits
        command_line model_version versioned_folder text_operators
        figure_style
        images ops
        layers neighbors
        batch_designs index
        losses
        models metrics
        tfa plots export run_calibration run_view
        __main__
    """,
    "tfdml.index": """
        rows
        storage
        local
        engines milvus
    """,
    "training": """
        environment json_files
        recipe
        data
        measure
        reports
        run
        evaluation
        commands
        __main__
    """,
    "serving": """
        storage web
        client endpoint
        search
        export
        commands
        __main__
    """,
    "serving.search": """
        gallery
        app
    """,
}

# The one part of an application that Python code imports.
CLIENT = "serving/client/__init__.py"

# Files that one page of a reader's screen does not hold are split by job.
LONGEST_FILE = 400
SHORTEST_FILE = 20
SHORT_FILES = ("__init__.py", "__main__.py", "_version.py")

# A word of our own beside one of the field's, with the word to use. A name that is on
# the wire or in saved files keeps its word: each such file is listed with the reason.
BANNED_WORDS = {
    "picture": "image",
    "neighbour": "neighbor",
    "colour": "color",
    "optimiser": "optimizer",
    "normalis": "normaliz",
    "labelled(?!by)": "labeled",  # ARIA has `labelledby`
    "behaviour": "behavior",
    "centre": "center",
    "grey": "gray",
    "how-manieth": "rank",
}
KEPT_WORDS = {
    ("picture", "benchmarks/search/visitor.py"): "the address of an image",
    ("picture", "docs/search.md"): "the address and the folder of images",
    ("picture", "tfdml/run_view.py"): "the table of old recipes",
    ("picture", "serving/search/app/app.py"): "the address of an image",
    ("picture", "serving/search/gallery/gallery.py"): "the attribute in saved indexes",
    ("picture", "serving/search/gallery/stored_images.py"): "the attribute and folder",
    ("picture", "serving/search/static/openapi.yaml"): "the address of an image",
    ("picture", "serving/search/static/query.js"): "the address of an image",
    ("picture", "training/recipe/recipe.py"): "the table of old recipes",
    ("picture", "training/reports/run_page.py"): "the key in old run folders",
    ("neighbour", "docs/references.md"): "the title of a paper",
    ("neighbour", "tfdml/losses/_nca.py"): "the title of the paper",
    ("grey", "benchmarks/papers/sets.py"): "the key in recorded results",
    ("grey", "training/recipe/recipe.py"): "the key of old recipes",
}

# Private parts of other libraries, with the requirement that bounds each.
PRIVATE_APIS = {"keras.src": "keras>=", "uvicorn.protocols": "uvicorn>="}


@functools.cache
def sources():
    """Return path and syntax tree of each module, by its dotted name."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts).removesuffix(".__init__")
            found[name] = (path, ast.parse(path.read_text("utf-8")))
    return found


def is_face(path):
    return path.name == "__init__.py"


def absolute(importer, node):
    """Return the full name of what a `from` imports from."""
    if not node.level:
        return node.module
    package = importer.split(".")
    above = node.level - is_face(sources()[importer][0])
    package = package[: len(package) - above]
    return ".".join([*package, node.module] if node.module else package)


@functools.cache
def imports():
    """Return what each module imports of ours: module, imported module, line."""
    modules = sources()
    found = []
    for name, (_, tree) in modules.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                source = absolute(name, node)
                for alias in node.names:
                    whole = f"{source}.{alias.name}"
                    target = whole if whole in modules else source
                    found.append((name, target, node.lineno))
            elif isinstance(node, ast.Import):
                found += [(name, alias.name, node.lineno) for alias in node.names]
    return [i for i in found if i[1].split(".")[0] in PACKAGES]


def at(module, line):
    return f"{sources()[module][0].relative_to(ROOT)}:{line}"


def report(faults, rule):
    assert not faults, rule + "\n" + "\n".join(sorted(faults))


def test_applications_meet_at_files():
    allowed = {
        "tfdml": {"tfdml"},
        "training": {"tfdml", "training"},
        "serving": {"tfdml", "serving"},
        "benchmarks": set(PACKAGES),
    }
    report(
        [
            f"{at(module, line)} imports {target}"
            for module, target, line in imports()
            if target.split(".")[0] not in allowed[module.split(".")[0]]
        ],
        "`tfdml` imports neither application, and neither imports the other:",
    )


def test_applications_do_not_name_themselves():
    """An application is `serving` in a checkout, `tfdml.serving` in the wheel."""
    report(
        [
            at(module, node.lineno)
            for module, (_, tree) in sources().items()
            for node in ast.walk(tree)
            if module.split(".")[0] in ("training", "serving")
            and (
                isinstance(node, ast.ImportFrom)
                and not node.level
                and node.module.split(".")[0] == module.split(".")[0]
            )
        ],
        "Inside an application, imports of its own files are relative:",
    )


@pytest.mark.parametrize("package", FLOORS)
def test_rooms_import_downward(package):
    floors = [line.split() for line in FLOORS[package].split("\n") if line.strip()]
    floor_of = {room: level for level, rooms in enumerate(floors) for room in rooms}
    depth = package.count(".") + 1
    rooms_there = {
        name.split(".")[depth]
        for name in sources()
        if name.startswith(package + ".") and name.count(".") >= depth
    }
    if package == "tfdml":
        assert rooms_there == floor_of.keys(), "list each room of tfdml in FLOORS"

    def room(module):
        parts = module.split(".")
        return parts[depth] if len(parts) > depth else None

    faults = []
    for module, target, line in imports():
        if not (module.startswith(package) and target.startswith(package + ".")):
            continue
        above, below = room(module), room(target)
        if above == below or above not in floor_of or below not in floor_of:
            continue
        if floor_of[below] >= floor_of[above]:
            faults.append(f"{at(module, line)}: {above} imports {below}")
    report(faults, f"Rooms of {package} import only what is below them in FLOORS:")


def test_no_file_imports_in_a_circle():
    graph = {}
    for module, target, _ in imports():
        if target in sources() and target != module and "__init__" not in target:
            graph.setdefault(module, set()).add(target)
    # A face imports its files and they may import another face: files alone count.
    graph = {
        module: {t for t in targets if not is_face(sources()[t][0])}
        for module, targets in graph.items()
        if not is_face(sources()[module][0])
    }
    state, faults = {}, []

    def visit(module, path):
        state[module] = "open"
        for target in sorted(graph.get(module, ())):
            if state.get(target) == "open":
                faults.append(" -> ".join([*path[path.index(target) :], target]))
            elif target not in state:
                visit(target, [*path, target])
        state[module] = "done"

    for module in sorted(graph):
        if module not in state:
            visit(module, [module])
    report(faults, "Files that import each other are one file, or need a third:")


def test_private_files_are_imported_inside_their_package_alone():
    faults = []
    for module, target, line in imports():
        parts = target.split(".")
        for depth, part in enumerate(parts):
            if part.startswith("_") and not part.startswith("__"):
                owner = ".".join(parts[:depth])
                if not (module + ".").startswith(owner + "."):
                    faults.append(f"{at(module, line)} imports {target}")
        if target.startswith("tfdml.") and target.count(".") > 1:
            room = ".".join(parts[:2])
            # What every room needs has no face: `_core` is private as a whole.
            if room != "tfdml._core" and not module.startswith((room, "benchmarks.")):
                faults.append(f"{at(module, line)} imports {target}, below {room}")
    report(faults, "A file named with `_` belongs to its package; import the face:")


def test_faces_alone_list_what_is_public():
    faults = []
    for path, tree in sources().values():
        listed = [
            node.value
            for node in tree.body
            if isinstance(node, ast.Assign)
            and [getattr(t, "id", None) for t in node.targets] == ["__all__"]
        ]
        where = path.relative_to(ROOT)
        if listed and not (is_face(path) or path == ROOT / "tfdml" / "tfa.py"):
            faults.append(f"{where} has an `__all__`")
        elif listed and where.parts[0] != "tfdml" and str(where) != CLIENT:
            faults.append(f"{where} has an `__all__`, applications have no Python API")
    report(faults, "`__all__` belongs in the faces of the library alone:")


def test_files_hold_one_thing_each():
    faults = []
    for path, _ in sources().values():
        lines = len(path.read_text("utf-8").splitlines())
        if lines > LONGEST_FILE:
            faults.append(f"{path.relative_to(ROOT)}: {lines} lines, split it by job")
        elif lines < SHORTEST_FILE and path.name not in SHORT_FILES:
            faults.append(f"{path.relative_to(ROOT)}: {lines} lines, merge it")
    report(faults, f"A file has {SHORTEST_FILE} to {LONGEST_FILE} lines:")


@pytest.mark.parametrize("word", BANNED_WORDS)
def test_one_word_for_each_thing(word):
    static = ROOT / "serving" / "search" / "static"
    texts = [
        ROOT / "README.md",
        ROOT / "setup.py",
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "training" / "recipes").rglob("*.toml"),
        *(path for path in static.iterdir() if path.suffix != ".svg"),
        *(path for path, _ in sources().values()),
    ]
    faults = []
    for path in texts:
        where = str(path.relative_to(ROOT))
        found = [
            f"{where}:{number}: {line.strip()}"
            for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
            if re.search(word, line, re.IGNORECASE)
        ]
        if (word, where) in KEPT_WORDS:
            found = [] if found else [f"{where}: not there, remove it from KEPT_WORDS"]
        faults += found
    report(faults, f"Say {BANNED_WORDS[word]!r}, not {word!r}:")


def test_public_functions_check_embeddings_once_at_the_door():
    """Private functions take what the public ones have checked."""
    faults = []
    for module, (path, tree) in sources().items():
        if not module.startswith("tfdml."):
            continue
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef) or not node.name.startswith("_"):
                continue
            calls = {
                getattr(call.func, "id", None)
                for call in ast.walk(node)
                if isinstance(call, ast.Call)
            }
            is_door = node.name.startswith(("__", "_checked"))
            if "as_embeddings" in calls and not is_door:
                faults.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}")
    report(faults, "`as_embeddings` is called by public functions alone:")


def test_private_parts_of_other_libraries_are_bounded():
    requirements = (ROOT / "setup.py").read_text("utf-8")
    faults = []
    for path, tree in sources().values():
        for node in ast.walk(tree):
            named = [node.module] if isinstance(node, ast.ImportFrom) else []
            if isinstance(node, ast.Import):
                named = [alias.name for alias in node.names]
            for name in filter(None, named):
                if re.search(r"(^|\.)(src|_impl|protocols)(\.|$)", name):
                    bound = next(
                        (b for p, b in PRIVATE_APIS.items() if name.startswith(p)), None
                    )
                    if bound is None or not re.search(
                        rf'"{re.escape(bound)}[^"]*<', requirements
                    ):
                        faults.append(f"{path.relative_to(ROOT)} imports {name}")
    report(faults, "setup.py bounds a library above whose private parts are used:")


# Modules and functions that Windows lacks; what macOS lacks, too.
POSIX_MODULES = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "termios", "tty"}
POSIX_FUNCTIONS = {
    "add_signal_handler",
    "fork",
    "geteuid",
    "getuid",
    "memfd_create",
    "mkfifo",
    "pread",
    "sched_getaffinity",
    "setsid",
    "statvfs",
    "umask",
}


def test_nothing_of_one_system_is_needed_to_import():
    faults = [
        at(name, node.lineno)
        for name, (_, tree) in sources().items()
        if not name.startswith("benchmarks")
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for imported in (
            [node.module]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
        )
        if imported in POSIX_MODULES
    ]
    report(faults, "A module of POSIX is imported by the function that can do without:")


def test_functions_of_one_system_are_called_only_there():
    faults = []
    for name, (path, tree) in sources().items():
        text = path.read_text("utf-8")
        faults += [
            f"{at(name, node.lineno)} calls {node.attr}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute)
            and node.attr in POSIX_FUNCTIONS
            and f'hasattr(os, "{node.attr}")' not in text
            and 'sys.platform == "win32"' not in text
            and not name.startswith("benchmarks")
        ]
    report(faults, "What a system may lack is asked for first:")


def test_docstrings_begin_with_a_verb():
    begin = re.compile(r"(A|An|The|What|Whether|Which|Who|How|That|Tell|Say)\b")
    faults = []
    for path, tree in sources().values():
        for node in ast.walk(tree):
            if not isinstance(
                node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)
            ):
                continue
            decorators = {
                d.id for d in getattr(node, "decorator_list", ()) if hasattr(d, "id")
            }
            text = ast.get_docstring(node) or ""
            if isinstance(node, ast.Module) and path.name in SHORT_FILES:
                continue
            if "property" not in decorators and begin.match(text):
                line = getattr(node, "lineno", 1)
                first = text.splitlines()[0]
                faults.append(f"{path.relative_to(ROOT)}:{line}: {first}")
    report(faults, "The first line of a file or function says what it does:")


def test_progress_is_shown_in_one_place():
    faults = []
    for name, (_, tree) in sources().items():
        for node in ast.walk(tree):
            named = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if isinstance(node, ast.Import):
                named = [alias.name for alias in node.names]
            if name != "tfdml.progress" and any(
                word.partition(".")[0] in ("tqdm", "rich") for word in named
            ):
                faults.append(at(name, node.lineno))
    report(faults, "tfdml/progress.py shows how far a job is, also in a file:")


def test_messages_show_values_by_one_function():
    """`{value!r}` in a message may be a megabyte, or color the terminal."""
    faults = [
        at(name, value.lineno)
        for name, (_, tree) in sources().items()
        if not name.startswith("benchmarks")
        for raised in ast.walk(tree)
        if isinstance(raised, ast.Raise)
        for value in ast.walk(raised)
        if isinstance(value, ast.FormattedValue) and value.conversion == ord("r")
    ]
    report(faults, "A message shows a value by `shown` of tfdml.messages, not by `!r`:")


def test_no_test_moves_the_clock_of_the_whole_process():
    """A server in another thread would sleep until the true time: for hours."""
    moves = re.compile(r"setattr\(\s*(time,|[\w.]*\btime\b,|\"[\w.]*\.time\.)")
    for path in sorted((ROOT / "tests").rglob("*.py")):
        assert not moves.search(path.read_text("utf-8")), path
