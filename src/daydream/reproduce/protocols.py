"""What a grid is made of: at which scale it is run, what the user decides, and one cell's run.

Runs keep their memory by the rule `total`, as the paper's own do (40 exemplars per class at 50 classes, 20 at 100), but
for the grids that ask for so many exemplars of each class;
numbers the paper quotes for other methods may belong to another rule, which each of its cells names.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Literal

from daydream.methods import METHODS, load_method
from daydream.protocol.stream import PAPER_ORDERS
from daydream.settings import require, setting

Values = dict[str, Any]

STEPS, MEMORY = 10, 2000
"""The protocol of all but Table 1."""
PILE_CLASSES = (500, 300, 100)


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How large a grid is run: the paper's protocol, one that two CPU cores can do, or one in miniature."""

    name: str
    run: Values
    data: Values = field(default_factory=dict)
    method: Values = field(default_factory=dict)
    """Settings for each method that has them."""
    imagination: Values = field(default_factory=dict)
    orders: tuple[str, ...]
    stand_in: Mapping[str, Values] = field(default_factory=dict)
    """Sections of the runs that stand in for ImageNet-Subset, where they differ from the other grids'."""
    exemplars: float = 1.0
    """Exemplars for each one of the paper's."""
    tasks: Mapping[str, int] = field(default_factory=dict)
    """Tasks that are enough for a grid; all of them where it is not named."""
    pile_share: Callable[[float], dict[str, Values]] | None = None
    """Sections of a run that may use a share of the pile, where that is not ImageNet with its 1,000 classes."""
    comparable: bool = True
    """Whether our numbers may stand beside the paper's."""
    one_column: bool = False
    """Whether Table 1 is its column of 10 steps and memory 2,000 alone."""
    quick: bool = False
    """Whether a grid takes minutes, so that nobody need be asked before it starts."""


FULL = Scale(
    name="full",
    run={"data": "cifar100", "backbone": "resnet32", "base": 50, "budget": "total"},
    stand_in={"run": {"data": "tiny-imagenet", "backbone": "resnet18"}, "data": {"labelled": "0:100"}},
    orders=PAPER_ORDERS["cifar100"],
    tasks={"piles": 4, "counterparts": 4, "depth": 4, "tradeoffs": 4},
)
SMALL = Scale(
    name="small",
    run={"data": "cifar100", "backbone": "resnet10", "base": 10, "budget": "total"},
    data={"labelled": "0:30"},
    method={"base_epochs": 40, "epochs": 40, "batch_size": 64, "updates": 2000},
    imagination={"generator_epochs": 16, "generator_width": 32},
    orders=tuple(f"seed:{number}" for number in range(1, 9)),
    exemplars=0.2,
    tasks=dict.fromkeys(("table1", "parts", "controls", "memory"), 6),
    one_column=True,
    pile_share=lambda share: {"pile": {"pile_classes": round(share * 70)}},
    comparable=False,
)
SMOKE = Scale(
    name="smoke",
    run={"data": "shapes", "backbone": "resnet10", "base": 10, "budget": "total"},
    data={"classes": 20, "train_per_class": 80, "test_per_class": 20, "image_size": 16, "pile_size": 1000},
    method={
        "base_epochs": 24,
        "epochs": 8,
        "batch_size": 20,
        "finetune_epochs": 3,
        "correction_epochs": 5,
        "updates": 100,
    },
    imagination={
        "generator_epochs": 4,
        "generator_updates": 5,
        "generator_width": 16,
        "generator_start": "noise",
    },
    orders=("natural", "seed:1", "seed:2"),
    exemplars=0.1,
    tasks=dict.fromkeys(
        (
            *("table1", "ablation", "piles", "counterparts", "depth", "tradeoffs", "features", "standin", "dream"),
            *("parts", "controls", "memory"),
        ),
        3,
    ),
    pile_share=lambda share: {"data": {"pile_size": round(share * 1000)}},
    comparable=False,
    quick=True,
)
SCALES = {scale.name: scale for scale in (FULL, SMALL, SMOKE)}


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What the user decides about a grid."""

    scale: Scale = FULL
    root: str = ""
    unlabeled: str = ""
    tasks: int | None = None
    seed: int = 1
    device: str = "auto"
    precision: str = "auto"
    compile: bool | None = None
    pile_classes: tuple[int, ...] = PILE_CLASSES


@dataclass(frozen=True, kw_only=True)
class GridSettings:
    """What can be said of a grid, as flags."""

    scale: Literal["full", "small", "smoke"] = setting(
        "full",
        "full: the paper's protocol on CIFAR-100; small: 30 of its classes, the others the pile, and a small network, "
        "for a CPU; smoke: in miniature on shapes, in minutes",
    )
    root: str = setting("", "folder or archive of CIFAR-100; of `standin`, of Tiny-ImageNet")
    unlabeled: str = setting("", "the pile, e.g. imagenet32:DIR: see `daydream run --help`")
    cells: str = setting("", "only these cells: names or patterns, e.g. 'imagine-*,ucir-5-2000'")
    methods: str = setting("", "only these methods, separated by commas")
    orders: int = setting(1, "class orders to run and average over: the paper's three, or 1 to 8 at scale small")
    tasks: int | None = setting(
        None, "stop each run after so many tasks; by default 4 for piles, counterparts, depth, tradeoffs"
    )
    pile_classes: tuple[int, ...] = setting(PILE_CLASSES, "of `piles`: the numbers of classes", expert=True)
    seed: int = setting(1, "seed of every run")
    device: str = setting("auto", "auto, cpu, cuda or cuda:N")
    precision: str = setting("auto", "auto, bf16, tf32 or fp32: see `daydream run --help-all`", expert=True)
    compile: bool | None = setting(None, "compile the network; by default on a GPU only", expert=True)
    engine: Literal["process", "ray"] = setting(
        "process", "process: on this machine; ray: on the cluster RAY_ADDRESS names, or on a local one"
    )
    jobs: int = setting(1, "runs at once on this machine, each in its own process")
    gpu_share: float = setting(1.0, "with --engine ray: how much of a GPU a run is given")

    def __post_init__(self) -> None:
        jobs, orders, share, on_ray = self.jobs, self.orders, self.gpu_share, self.engine == "ray"
        require(jobs >= 1, f"--jobs {jobs} must be at least 1: the runs at once on this machine")
        require(jobs == 1 or not on_ray, "--jobs is for this machine; with --engine ray use --gpu-share")
        require(share == 1 or on_ray, "--gpu-share is for --engine ray; here use --jobs")
        require(share > 0, f"--gpu-share {share} must be above 0, e.g. 0.25 for four runs on a GPU")
        most = len(SCALES[self.scale].orders)
        why = f"the scale {self.scale} has {most} class orders"
        require(1 <= orders <= most, f"--orders {orders} must be at least 1 and at most {most}: {why}")
        wrong = not self.pile_classes or min(self.pile_classes) < 1
        require(not wrong, "--pile-classes must be whole numbers above 0, separated by commas")

    @property
    def choices(self) -> Choices:
        """Return what of it a run depends on."""
        names = [field.name for field in fields(Choices) if field.name != "scale"]
        return Choices(scale=SCALES[self.scale], **{name: getattr(self, name) for name in names})

    def words(self, name: Literal["cells", "methods"]) -> list[str]:
        """Return the words of a list separated by commas."""
        return [word.strip() for word in str(getattr(self, name)).split(",") if word.strip()]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One number to be reproduced: the run that gives it, and the paper's."""

    name: str
    row: str
    method: str
    steps: int = STEPS
    memory: int | None = MEMORY
    paper: float | None = None
    mark: str = ""
    budget: str = "total"
    """The memory rule behind the paper's number."""
    beside: str = ""
    """The cell of which this one is a variant, where a grid compares its own cells."""
    values: Values | None
    """The run's settings but for the class order; None where the method is not implemented."""


def values(
    choices: Choices,
    tasks: int | None,
    method: str,
    steps: int = STEPS,
    memory: int = MEMORY,
    sections: Mapping[str, Values] = MappingProxyType({}),
) -> Values | None:
    """Return the settings of a run, in sections as `make_config` takes them; None for a method that does not exist."""
    if method not in METHODS:
        return None
    scale, kind = choices.scale, load_method(method)
    run = {
        **scale.run,
        "method": method,
        "steps": steps,
        "memory": round(memory * scale.exemplars),
        "tasks": tasks,
        "root": choices.root,
        "seed": choices.seed,
        "device": choices.device,
        "precision": choices.precision,
        "compile": choices.compile,
        **sections.get("run", {}),
    }
    known = {f.name for f in fields(kind.Settings)}
    recipe = {key: value for key, value in scale.method.items() if key in known}
    whole: Values = {"run": run, "data": {**scale.data, **sections.get("data", {})}}
    whole["method"] = {**recipe, **sections.get("method", {})}
    whole["parts"] = sections.get("parts", {})
    if kind.replays:
        taught = sections.get("pile", {})
        needs_pile = bool(kind.imagines or taught.get("pile_distill") or taught.get("pile_teach"))
        whole["imagination"] = {**scale.imagination, **sections.get("imagination", {})} if needs_pile else {}
        whole["pile"] = {"unlabeled": choices.unlabeled, **sections.get("pile", {})} if needs_pile else {}
    elif kind.needs_pile:
        whole["pile"] = {"unlabeled": choices.unlabeled, **sections.get("pile", {})}
    return whole
