"""List the studies: the runs that test the claims of a paper."""

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.papers import variants
from benchmarks.papers.cases import CASES
from benchmarks.papers.metrics import NO_PAIR
from benchmarks.papers.runs import FLOOR, FLOORS, Run
from benchmarks.papers.sets import tables_of
from benchmarks.papers.tuning import Rates
from benchmarks.papers.variants import Variant


@dataclass(frozen=True)
class Study:
    """A study.

    Args:
        title: What it asks, and of which paper.
        variants: Yields what is trained on a set.
        varied: What its points are; empty where it varies nothing.
        reported: The columns of `Metrics` that are reported at each point; only the
            first if empty.
        baselines: A series and one that it is compared with at each point.
        with_curve: Whether each run is measured after each epoch.
        is_timed: Whether it measures the time of a step: its runs have the machine for
            themselves.
        follows: A metric of its curves that has a figure; empty for none.
        note: What must be known to read it.
    """

    title: str
    variants: Callable[[str], Iterator[Variant]]
    varied: str = ""
    reported: tuple[str, ...] = ()
    baselines: tuple[tuple[str, str], ...] = ()
    with_curve: bool = False
    is_timed: bool = False
    follows: str = ""
    note: str = ""

    def of(self, set_: str) -> list[Variant]:
        """Return what can be trained on a set."""
        return [v for v in self.variants(set_) if CASES[v.case].suits(set_)]

    def runs(
        self, name: str, sets: Sequence[str], rates: Rates, steps: int, seeds: Sequence
    ) -> list[Run]:
        """Return its runs, seed by seed, of the losses whose rates are known."""
        return [
            self._run(name, set_, variant, rate, steps, seed)
            for seed in seeds
            for set_ in sets
            for variant in self.of(set_)
            if (rate := rates.get(variant.place(set_)))
        ]

    def _run(
        self, name: str, set_: str, variant: Variant, rate: float, steps: int, seed: int
    ) -> Run:
        case = CASES[variant.case]
        fit = {"learning_rate": rate, "steps": steps, "seed": seed}
        fit |= variant.changes.get("fit", {})
        return Run(
            name,
            variant.name,
            case.tables(set_, variant.changes | {"fit": fit}),
            variant.point,
            thinned=variant.thinned,
            noise=variant.noise,
            classes=variant.classes,
            prefix=variant.prefix,
            prefixes=variant.prefixes,
            unit_length=case.unit_length,
            with_curve=self.with_curve,
            is_timed=self.is_timed,
        )


def floor_runs(sets: Sequence[str]) -> list[Run]:
    """Return what is measured of each set without any training."""
    return [
        Run(FLOOR, series, tables_of(set_), is_trained=False)
        for set_ in sets
        for series in FLOORS
    ]


_OF_DEFAULT = "The learning rate is the one chosen at the default."
_HEADLINE = (
    "The learning rate of each loss is chosen in these batches, that of top-k "
    "precision at the paper's k of 5 and margin of 0.1."
)
STUDIES = {
    "losses": Study(
        "All losses on the same batches (Lu et al., Table 1 and Figure 4; Kim et al., "
        "CVPR 2020, convergence)",
        variants.losses,
        with_curve=True,
    ),
    "headline": Study(
        "The losses of Table 1 in the paper's batches: 64 images, at most 11 of a "
        "class, small classes whole (Lu et al., Table 1 and Figure 4)",
        functools.partial(variants.headline, 0.0),
        with_curve=True,
        note=_HEADLINE,
    ),
    "headline_unequal": Study(
        "The same on training classes of unequal size, from 2 images to all (Lu et "
        "al., section 3.3.1)",
        functools.partial(variants.headline, 1.0),
        with_curve=True,
        note=_HEADLINE,
    ),
    "larger": Study(
        "All losses with 160 and 320 images a batch",
        variants.larger,
        "images per batch",
        reported=("Precision@1", "MAP@R"),
        note="5 images a class; at equal steps. The learning rate is the one chosen at "
        "64.",
    ),
    "long": Study(
        "Four times as many steps",
        variants.long,
        "steps",
        reported=("Precision@1", "MAP@R"),
        note=_OF_DEFAULT,
    ),
    "recent": Study(
        "Recent losses beside four of the others, on the same batches",
        variants.recent,
        note="Rates are chosen for each loss; SiMix takes that of Recall@k, rank "
        "weights that of top-k precision, the consistent margin that of "
        "multi-similarity.",
    ),
    "large_batches": Study(
        "Batches of up to nearly all training images, by gradient caching (Patel et "
        "al., CVPR 2022; Gao et al.)",
        variants.large_batches,
        "images per batch",
        reported=("Precision@1", "MAP@R"),
        note="1,000 steps with 64 images, 400 with 320, 200 with 1,024, 100 with more. "
        "4 images a class; of furniture, 12 in the largest batch, which has no other "
        "images to add. The learning rate of more than 64 is the one chosen at 320.",
    ),
    "matryoshka": Study(
        "The first components of one embedding, trained for it (Kusupati et al.) and "
        "not, beside an embedding of each dimension",
        variants.matryoshka,
        "dimension",
        reported=("Precision@1", "MAP@R"),
        baselines=(("Matryoshka", "trained for each"), ("cut", "trained for each")),
        note="Multi-similarity. The learning rate is the one chosen at 128 dimensions.",
    ),
    "backbones": Study(
        "A pretrained network that learns whole, at rates that fall with the depth, by "
        "LoRA, or not at all",
        variants.backbones,
        note="Multi-similarity, MobileNet. The rate is chosen for each.",
    ),
    "designs": Study(
        "Batch designs with importance weights and without (Hong et al., Table 1)",
        variants.designs,
        "batch design",
        baselines=variants.WEIGHTS_ON_AND_OFF,
        note="Embeddings have unit length, the margin is 1; the paper does not "
        "normalize. The learning rate is the one chosen at (4, 16) with weights. 64 "
        "images in groups make 2,016 pairs, at random 32; for 2,016, as in the paper, "
        "a batch has 4,032 images.",
    ),
    "pose": Study(
        "Continuous labels by the dimension (Kim et al., CVPR 2019)",
        variants.pose,
        "dimension",
        reported=("distance of the first", "distance of 10", "nDCG@10"),
        baselines=tuple(
            (case, other)
            for case in ("log-ratio", "log-ratio, any length")
            for other in ("triplet, dense", "triplet, binary")
        ),
        note="The learning rate is the one chosen at 128 dimensions.",
    ),
    "batch_sizes": Study(
        "Batch sizes (Wang, Han et al., CVPR 2019, supplement)",
        variants.batch_sizes,
        "images per batch",
        reported=("Precision@1", NO_PAIR),
        baselines=(
            ("multi-similarity", "binomial deviance"),
            ("multi-similarity", "BinLifted"),
        ),
        note="At equal steps: a batch of 640 sees 32 times the images of one of 20. "
        "The learning rate is the one chosen at 64.",
    ),
    "dimensions": Study(
        "Embedding dimension (Kim et al., CVPR 2020)",
        variants.dimensions,
        "dimension",
        baselines=(("Proxy Anchor", "multi-similarity"),),
        note="The learning rate is the one chosen at 128 dimensions.",
    ),
    "top_k": Study(
        "k and margin of top-k precision (Lu et al.)",
        variants.top_k,
        "k",
        reported=("Precision@1", "Precision@10", "MAP@R"),
        note="Batches of as many images of a class as there are: 5 of emoji, 12 of "
        f"furniture. {_OF_DEFAULT}",
    ),
    "alpha_delta": Study(
        "Alpha and delta of Proxy Anchor (Kim et al., CVPR 2020)",
        variants.alpha_delta,
        "alpha",
        note=_OF_DEFAULT,
    ),
    "balances": Study(
        "Lambda of balanced contrastive (Hong et al.)",
        variants.balances,
        "lambda",
        note=_OF_DEFAULT,
    ),
    "induced_balances": Study(
        "Lambda that the contrastive loss induces by the number of classes (Hong et "
        "al., section 6.5)",
        variants.induced_balances,
        "induced lambda",
        note="Lambda + 1 random classes are trained on, others after each epoch of 100 "
        f"steps. {_OF_DEFAULT}",
    ),
    "powers": Study(
        "Importance weights to a power (Hong et al.)",
        variants.powers,
        "power of the weights",
        note="Batches of as many images of a class as there are: 5 of emoji, 12 of "
        f"furniture. {_OF_DEFAULT}",
    ),
    "thinned": Study(
        "Class sizes thinned by gamma, batches (2, 32) (Hong et al., section 6.4)",
        variants.thinned,
        "gamma",
        baselines=variants.WEIGHTS_ON_AND_OFF,
        note="Thinning also leaves fewer images: compare within a gamma. The learning "
        "rate is chosen at each gamma, with weights.",
    ),
    "training_loss": Study(
        "Contrastive loss over all training pairs, with importance weights and without "
        "(Hong et al., section 6.3)",
        variants.training_loss,
        with_curve=True,
        follows="training_loss",
        note=_OF_DEFAULT,
    ),
    "noise": Study(
        "Wrong labels of training images (Kim et al., CVPR 2020)",
        variants.noise,
        "share of wrong labels",
        note="The learning rate is the one chosen with right labels.",
    ),
    "cost": Study(
        "Time of a training step (Kim et al., CVPR 2020)",
        variants.cost,
        is_timed=True,
        note="Of one batch that is trained on over and over, without its reading.",
    ),
}
"""Every study by its name, the most asked for first."""
