# The public names; `lazy_loader` reads this file when one is first used.
from ._distributions import plot_hubness as plot_hubness
from ._distributions import plot_similarity_histograms as plot_similarity_histograms
from ._embedding_map import draw_embedding_map as draw_embedding_map
from ._embedding_map import embedding_map as embedding_map
from ._embedding_map import plot_embedding_map as plot_embedding_map
from ._gallery import plot_retrieval_gallery as plot_retrieval_gallery
from ._nearest_images import plot_nearest_images as plot_nearest_images
from ._pair_weights import Panel as Panel
from ._pair_weights import plot_pair_weights as plot_pair_weights
from ._pair_weights import plot_weights as plot_weights
from ._retrieval import plot_precision_recall as plot_precision_recall
from ._retrieval import plot_recall_at_k as plot_recall_at_k
from ._retrieval import plot_roc as plot_roc
from ._training import plot_convergence as plot_convergence
from ._training import plot_training as plot_training
