"""A folder in the cloud that a test fills, breaks and empties, without a cloud."""

from serving.storage.remote_folder import RemoteFile

GRAPH = "saved_model.pb"
INDEX = "variables/variables.index"
SHARD = "variables/variables.data-00000-of-00001"
MODEL = {GRAPH: b"graph", INDEX: b"index", SHARD: b"weights"}


class Cloud:
    """Answers as `RemoteFolder` from a dictionary of all files, by path.

    Attributes:
        content: The files.
        refuses: Whether each call is refused.
        on_copy: Called with the path of each file that is copied, before it is.
        copied: Paths of the files that were copied.
    """

    def __init__(self, content=None, prefix="", root=None):
        self.content = {} if content is None else content
        self.prefix = prefix
        self.refuses = False
        self.on_copy = lambda path: None
        self.copied = []
        self._root = root or self

    def __str__(self):
        return f"s3://cloud/{self.prefix}".rstrip("/")

    @property
    def url(self):
        return str(self)

    def __truediv__(self, name):
        return Cloud(self.content, f"{self.prefix}{name}/", self._root)

    def upload(self, version, files=MODEL):
        for name, content in files.items():
            self.content[f"{version}/{name}"] = content

    def remove(self, version):
        for path in [path for path in self.content if path.startswith(f"{version}/")]:
            del self.content[path]

    def files(self):
        self._check()
        return {
            path.removeprefix(self.prefix): RemoteFile(len(content), str(content))
            for path, content in self.content.items()
            if path.startswith(self.prefix)
        }

    def copy(self, name, file):
        self._check()
        path = f"{self.prefix}{name}"
        self._root.on_copy(path)
        if path not in self.content:
            raise FileNotFoundError(f"{self}/{name} cannot be read")
        file.write_bytes(self.content[path])
        self._root.copied.append(path)

    def _check(self):
        if self._root.refuses:
            raise PermissionError(f"{self} cannot be read (PermissionError: no)")
