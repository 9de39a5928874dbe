"""Find the recipes of papers that had a file of their own each."""

from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from .files import recipe_path


@dataclass(frozen=True)
class FormerRecipe:
    """What the recipe of a file became that is no longer there.

    Args:
        path: The file that describes it now.
        variant: Its name there.
        settings: What it had otherwise, as `read_recipe` takes them.
    """

    path: str
    variant: str
    settings: tuple[str, ...]


def former_recipe(path: str | PathLike[str]) -> FormerRecipe | None:
    """Return what a recipe of `papers` became that had a file of its own.

    Args:
        path: The former file, or its former name, such as papers/topk_cub_densenet.

    Returns:
        What it is now; None if the file is there, or never was.
    """
    file = Path(path)
    name = file.name.removesuffix(".toml")
    paper = next((paper for paper, names in FORMER.items() if name in names), None)
    if paper is None or file.parent.name != "papers" or recipe_path(path).is_file():
        return None
    variant = FORMER[paper][name]
    settings = tuple(
        setting
        for word, backbone in FORMER_BACKBONES.items()
        if word in variant.split("/")
        for setting in (f"embedder.backbone={backbone}", "embedder.weights=imagenet")
    )
    return FormerRecipe(str(file.with_name(paper + file.suffix)), variant, settings)


# The file of each, and its variant there.
FORMER = {
    "weighted_contrastive": {
        "balanced_contrastive_cars": "cars/balanced/is",
        "balanced_contrastive_cub": "cub/balanced/is",
        "balanced_contrastive_sop": "sop/balanced/is",
    },
    "log_ratio": {
        "log_ratio_mpii": "mpii/log_ratio/128",
    },
    "proxy_anchor": {
        "margin_cars": "cars/resnet50/128/margin",
        "margin_cub": "cub/resnet50/128/margin",
        "margin_sop": "sop/resnet50/128/margin",
        "multi_similarity_cars": "cars/bn_inception/512/multi_similarity",
        "multi_similarity_cub": "cub/bn_inception/512/multi_similarity",
        "multi_similarity_in_shop": "in_shop/bn_inception/512/multi_similarity",
        "multi_similarity_sop": "sop/bn_inception/512/multi_similarity",
        "proxy_anchor_cars": "cars/bn_inception/512/proxy_anchor",
        "proxy_anchor_cars_256": "cars/bn_inception/512/proxy_anchor/256px",
        "proxy_anchor_cars_324": "cars/bn_inception/512/proxy_anchor/324px",
        "proxy_anchor_cars_448": "cars/bn_inception/512/proxy_anchor/448px",
        "proxy_anchor_cars_resnet50": "cars/resnet50/512/proxy_anchor",
        "proxy_anchor_cub": "cub/bn_inception/512/proxy_anchor",
        "proxy_anchor_cub_256": "cub/bn_inception/512/proxy_anchor/256px",
        "proxy_anchor_cub_324": "cub/bn_inception/512/proxy_anchor/324px",
        "proxy_anchor_cub_448": "cub/bn_inception/512/proxy_anchor/448px",
        "proxy_anchor_cub_resnet50": "cub/resnet50/512/proxy_anchor",
        "proxy_anchor_in_shop": "in_shop/bn_inception/512/proxy_anchor",
        "proxy_anchor_in_shop_256": "in_shop/bn_inception/512/proxy_anchor/256px",
        "proxy_anchor_sop": "sop/bn_inception/512/proxy_anchor",
        "proxy_anchor_sop_256": "sop/bn_inception/512/proxy_anchor/256px",
        "proxy_nca_cars": "cars/bn_inception/64/proxy_nca",
        "proxy_nca_cub": "cub/bn_inception/64/proxy_nca",
        "proxy_nca_sop": "sop/bn_inception/64/proxy_nca",
        "soft_triple_cars_512": "cars/bn_inception/512/soft_triple",
        "soft_triple_cars_64": "cars/bn_inception/64/soft_triple",
        "soft_triple_cub_512": "cub/bn_inception/512/soft_triple",
        "soft_triple_cub_64": "cub/bn_inception/64/soft_triple",
        "soft_triple_sop_512": "sop/bn_inception/512/soft_triple",
        "soft_triple_sop_64": "sop/bn_inception/64/soft_triple",
    },
    "topk_precision": {
        "topk_cars_densenet": "cars/densenet201/topk",
        "topk_cars_inception": "cars/bn_inception/topk",
        "topk_cub_densenet": "cub/densenet201/topk",
        "topk_cub_inception": "cub/bn_inception/topk",
        "topk_sop_densenet": "sop/densenet201/topk",
        "topk_sop_inception": "sop/bn_inception/topk",
    },
}

# A word of a variant, and the network that its recipes had.
FORMER_BACKBONES = {"bn_inception": "InceptionV3", "mpii": "ResNet50"}
