"""What each golden case computes: the loss of its parameters, on its inputs.

A name of `GOLDENS` begins with that of the cases. It maps a case and a type to the
function of the case's float inputs, by name: `X`, `proxies`, ...
"""

from tests.support import golden_forms as forms
from tfdml import losses

angle = {"angle": "alpha_deg"}

GOLDENS = {
    "angular_all_pairs": forms.of_batch(losses.AngularLoss, **angle),
    "angular_all_pairs in turn": forms.of_batch(
        forms.in_turn(losses.AngularLoss), **angle
    ),
    "angular_mc": forms.of_pairs(losses.MultiClassAngularLoss, **angle),
    "angular_mc in turn": forms.of_pairs(
        forms.in_turn(losses.MultiClassAngularLoss), **angle
    ),
    "angular_triplet": forms.of_batch(
        losses.AngularTripletLoss, average=forms.average, **angle
    ),
    "binomial_deviance": forms.of_batch(
        losses.BinomialDevianceLoss,
        len,
        positive_scale="alpha",
        negative_scale="beta",
        threshold="lam",
    ),
    "binomial_deviance_yi": forms.of_batch(
        losses.BinomialDevianceLoss,
        positive_scale="alpha",
        negative_scale=lambda p: p["alpha"] * p["cost"],
        threshold="beta",
        per_anchor=lambda p: False,
    ),
    "contrastive": forms.of_batch(
        losses.ContrastiveLoss,
        forms.pairs_in,
        margin="margin",
        separate_means=lambda p: p["reduction"] == "mean_pos_neg",
        normalize="normalize",
    ),
    "contrastive_similarity": forms.cosine_contrastive,
    "histogram_loss": forms.of_batch(
        losses.HistogramLoss, bin_width=lambda p: 2 / (p["R"] - 1)
    ),
    "lifted_generalized": forms.of_batch(
        losses.GeneralizedLiftedStructureLoss,
        forms.complete_anchors_in,
        margin="margin",
        normalize="normalize",
    ),
    "lifted_similarity": forms.of_batch(
        losses.CosineLiftedStructureLoss,
        threshold="lam",
        positive_scale="alpha",
        negative_scale="beta",
    ),
    "lifted_structure": forms.of_batch(
        losses.LiftedStructureLoss, margin="margin", normalize="normalize"
    ),
    "log_ratio": forms.log_ratio,
    "margin_loss_pairs": forms.margin,
    "margin_loss_triplets": forms.margin_of_drawn_triplets,
    "multi_similarity": forms.of_batch(
        losses.MultiSimilarityLoss,
        positive_scale="alpha",
        negative_scale="beta",
        threshold="lam",
        epsilon="eps",
        mining="mining",
    ),
    "nca": forms.nca,
    "npair_all_pairs": forms.n_pair,
    "npair_mc": forms.multi_class_n_pair,
    "npair_mc of a gallery": forms.n_pair_of_a_gallery,
    "npair_tuple": forms.n_pair_of_a_tuple,
    "proxy_anchor": forms.proxy_anchor,
    "proxy_nca": forms.proxy_nca,
    "soft_triple": forms.soft_triple,
    "topk_precision_loss": forms.top_k,
    "triplet_all": forms.of_triplets(losses.TripletLoss, average=forms.average),
    "triplet_batch_hard": forms.of_triplets(losses.HardTripletLoss, soft="soft"),
    "triplet_distance_weighted_expected": forms.distance_weighted,
    "triplet_semihard": forms.of_triplets(losses.SemiHardTripletLoss),
    "triplet_semihard_window": forms.of_triplets(losses.SemiHardWindowTripletLoss),
    "weighted_contrastive_batch": forms.weighted_contrastive,
    "weighted_contrastive_pairs": forms.weighted_contrastive_of_pairs,
}
