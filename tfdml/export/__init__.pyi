# The public names; `lazy_loader` reads this file when one is first used.
from ._compact import OutputType as OutputType
from ._compact import restore_embeddings as restore_embeddings
from ._description import read_description as read_description
from ._portable import FileFormat as FileFormat
from ._portable import export_file as export_file
from ._saved_embedder import SavedEmbedder as SavedEmbedder
from ._saved_model import export_embedder as export_embedder
