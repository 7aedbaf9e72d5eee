"""What a method is: its settings, its stages for each task, and how it predicts."""

import math
from abc import ABC
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar, cast

import torch
from torch import Tensor

from daydream import rng
from daydream.data.augment import Augment, Prepare
from daydream.data.images import ImageSet
from daydream.errors import UserError
from daydream.nets.extractor import Joined, whole
from daydream.nets.heads import imprint
from daydream.nets.network import Network, mean_weight_norm
from daydream.nets.resnet import parameter_count
from daydream.nets.side_streams import beside
from daydream.protocol.inference import over_images
from daydream.protocol.memory import Budget, herd
from daydream.protocol.stream import Stream, Task
from daydream.settings import flag, require, setting
from daydream.stages import schedules
from daydream.stages.losses import cross_entropy
from daydream.stages.stage import SGD, Batch, Batches, Group, Kinds, Schedule, Stage, State


@dataclass(frozen=True)
class Setup:
    """What the run, not the method, decides."""

    backbone: str
    cut: str
    budget: Budget
    prepare: Prepare
    augment: Augment
    seed: int
    pile: ImageSet | None = None
    """The unlabelled images, for a method that needs them."""


class Prediction(NamedTuple):
    """What a learner says of a batch of images."""

    features: Tensor
    """[B, D], for the nearest mean of exemplars."""
    scores: Tensor
    """[B, C], for the head's accuracy."""


def unclamped(source: str = "paper") -> Any:
    """Declare the setting `clamp` of a method that has none."""
    return setting(None, f"clamp every gradient entry to plus or minus this; by default not ({source})", expert=True)


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """The training recipe every method starts from; the defaults are those of the paper's released configuration."""

    base_epochs: int = setting(160, "epochs of the base task (released configuration)")
    epochs: int = setting(160, "epochs of each increment (released configuration)")
    lr: float = setting(0.1, "learning rate, falling to 0 along a cosine (paper, section 4.1)")
    weight_decay: float = setting(5e-4, "weight decay (released configuration)", expert=True)
    batch_size: int = setting(128, "images in a step (released configuration)")
    clamp: float | None = setting(5.0, "clamp every gradient entry to plus or minus this (released code)", expert=True)

    def __post_init__(self) -> None:
        for name in ("base_epochs", "epochs", "batch_size"):
            require(getattr(self, name) >= 1, f"{flag(name)} {getattr(self, name)} must be at least 1")
        require(self.lr > 0, f"--lr {self.lr} must be above 0")
        require(self.clamp is None or self.clamp > 0, f"--clamp {self.clamp} must be above 0")

    def sgd(self) -> SGD:
        return SGD(lr=self.lr, weight_decay=self.weight_decay)


@dataclass(frozen=True, kw_only=True)
class RehearsalSettings(TrainingSettings):
    """The recipe of a method whose batches hold new images and exemplars."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.batch_size >= 2, "--batch-size must be at least 2: a batch holds new images and exemplars")


@dataclass(frozen=True, kw_only=True)
class RebalancingSettings(RehearsalSettings):
    """The recipe of a method that then fits its class weights to the memory."""

    finetune_epochs: int = setting(
        20, "epochs in which the class weights are fitted to the memory after an increment (released code)", expert=True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.finetune_epochs >= 0, f"--finetune-epochs {self.finetune_epochs} must not be negative")


S = TypeVar("S", bound=TrainingSettings)
T = TypeVar("T")


class Method(ABC, Generic[S]):
    """A class-incremental learner: a list of stages per task over one state."""

    Settings: ClassVar[type[TrainingSettings]]
    kinds: ClassVar[Kinds] = {"Network": Network}
    """Builders of the networks this method keeps in its state, by class name."""
    keeps_exemplars: ClassVar[bool] = True
    """Whether it needs a memory (and so cannot run with --memory 0)."""
    reports: Literal["cnn", "nme"] = "nme"
    """The accuracy its paper reports."""
    reading: ClassVar[bool] = False
    """Whether it is a reading of a paper that leaves much open: no run of it is held against that paper's number."""
    head: str = "proxy"
    recipe: str = "cross-entropy"
    """Loss and schedule of its base task in words, to be changed with `classification` and `schedule`: runs share a
    base task only where these words and the settings agree."""
    needs: ClassVar[int] = 1
    """Exemplars of an old class that an increment cannot do without."""
    frozen: ClassVar[bool] = False
    """Whether its network stays as it is after the base task, so that known classes alone teach it nothing."""
    needs_pile: ClassVar[bool] = False
    """Whether it trains on unlabelled images itself, its `pile`; what components do with them is theirs."""
    replays: ClassVar[bool] = False
    """Whether a stage of it names a stream of exemplars, which imagination can add counterparts to."""
    imagines: ClassVar[Literal["", "generators", "pixels"]] = ""
    """How it makes counterparts without being asked (`--imagine`), if it does."""
    carries: ClassVar[frozenset[str]] = frozenset({"blend", "rotations", "erase", "augment", "pile_distill"})
    """The parts (`components/parts.py`) that fit it. They need a `Network` called `net`, with new images in a stream
    `new`; blending also needs an increment to go on with the network of the task before, distillation on
    the pile that the method `replays` and keeps that network as `old`."""
    refuses: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Why a part, or a part with one value (`rotations all`), does not fit it, in a line; `imagine` among them."""
    defaults: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """Defaults it gives to settings of imagination, of the pile and of parts, by name."""

    @classmethod
    def usual(cls, base_epochs: int | None) -> Mapping[str, Any]:
        """Return the defaults it gives to settings, its own among them, when the base task has so many epochs."""
        return cls.defaults

    def __init__(self, settings: S, setup: Setup) -> None:
        self.settings = settings
        self.setup = setup

    def stages(self, task: Task) -> list[Stage]:
        """Return the stages of a task: one that trains, one that selects. Only described: nothing may train yet."""
        train = self.classify(task, task.train, self.settings.base_epochs) if task.is_base else self.increment(task)
        return [train, self.select(task)]

    def increment(self, task: Task) -> Stage:
        """Return the stage that learns new classes beside exemplars of the old ones: by the method's terms."""
        return self.rehearse(task, task.train)

    def reshape(self, stream: Stream, tasks: int | None) -> Stream:
        """Return the stream this method is to see; only an upper bound changes it. `tasks` is where the run stops."""
        return stream

    def check(self, stream: Stream) -> None:
        """Raise the user's mistake if stream and memory do not fit this method; called before anything is written."""

    @property
    def pile(self) -> ImageSet:
        """Return the unlabelled images of a method that needs them."""
        assert self.setup.pile is not None, "a method that only predicts has no pile"
        return self.setup.pile

    def schedule(self, epoch: int, epochs: int) -> float:
        """Return the factor on the learning rate in an epoch: along a cosine."""
        return schedules.cosine(epoch, epochs)

    def predict(self, state: State, images: Tensor) -> Prediction:
        """Judge prepared images [B, 3, h, w]."""
        net = whole(state.nets)
        z = net.features(images)
        return Prediction(z, net.head(z))

    def exported(self, state: State) -> Network | Joined:
        """Return one plain network that predicts as this method does, to be used elsewhere, or say that none does."""
        if type(self).predict is not Method.predict:
            name = type(self).__name__
            raise UserError(
                f"method {name} predicts in its own way, not by network and head alone: it cannot be exported"
            )
        return whole(state.nets)

    def parameters(self, state: State) -> tuple[int, int]:
        """Count what prediction needs: (backbone, head). The field's tables count the backbone alone."""
        net = whole(state.nets)
        return parameter_count(net) - parameter_count(net.head), parameter_count(net.head)

    def expected_parameters(self, task: Task) -> tuple[int, int]:
        """Return what `parameters` will count after a task, before anything is trained."""
        net = self.new_network(task)
        return parameter_count(net) - parameter_count(net.head), parameter_count(net.head)

    def classification(self, state: State, z: Tensor, labels: Tensor) -> Tensor:
        """Return the method's classification loss on features [B, D], of images as of counterparts."""
        return cross_entropy(network(state).head(z), labels)

    def terms(self, task: Task, state: State, images: Tensor, labels: Tensor) -> Mapping[str, Tensor]:
        """Return the named losses of an increment on new images and exemplars alike."""
        return {"ce": self.classification(state, network(state).features(images), labels)}

    def trains_on(self, quota: int) -> int:
        """Return how many of the exemplars of an old class an increment trains on."""
        return quota

    # Pieces that methods share.

    def new_network(self, task: Task, name: str = "net", classes: int | None = None) -> Network:
        """Build a fresh network for all classes seen, or for so many; each name has random weights of its own."""
        use = ("init",) if name == "net" else ("init", name)
        with rng.seeded(self.setup.seed, *use, task.index):
            return Network(self.setup.backbone, self.head, (classes or task.num_seen,), self.setup.cut)

    def features(self, state: State, images: ImageSet) -> Tensor:
        """Return the features [N, D] of an image set under the current network."""
        return over_images(lambda x: (self.predict(state, x).features,), images, self.setup.prepare)[0]

    def classify(self, task: Task, images: ImageSet, epochs: int, name: str = "net") -> Stage:
        """Return the stage that trains a fresh network on images by the classification loss: the base task's.

        Under another name than `net` the network stands beside those there are, knows the classes of `images` alone,
        whose labels count from 0, and learns them by cross-entropy.
        """
        settings, is_net = self.settings, name == "net"

        def begin(state: State) -> None:
            net = self.new_network(task, name, None if is_net else len(images.class_names))
            state.nets = {**({} if is_net else state.nets), name: net.to(state.device)}

        def streams(state: State) -> Mapping[str, Batches]:
            return {"new": Batches(images=images, size=settings.batch_size, augment=self.setup.augment)}

        def losses(state: State, batch: Batch) -> Mapping[str, Tensor]:
            images, labels = batch["new"].images, batch["new"].labels
            if is_net:
                return {"ce": self.classification(state, whole(state.nets).features(images), labels)}
            return {"ce": cross_entropy(network(state, name)(images), labels)}

        recipe = {
            k: v for k, v in asdict(settings).items() if k in TrainingSettings.__dataclass_fields__ and k != "epochs"
        }
        return Stage(
            name="train" if is_net else name,
            epochs=epochs,
            steps=math.ceil(len(images) / settings.batch_size),
            trains=lambda state: [Group(list(state.nets[name].parameters()))],
            streams=streams,
            losses=losses,
            optimizer=settings.sgd(),
            schedule=self.schedule,
            clamp=settings.clamp,
            train_mode=frozenset({name}),
            split=True,
            begin=begin,
            shared_as={"recipe": self.recipe, "head": self.head, **recipe, "base_epochs": epochs} if is_net else None,
        )

    def grow(self, state: State, task: Task, imprinted: bool = False, name: str = "net") -> None:
        """Add the new classes to the head, with fresh weights or with weights imprinted from their images' features."""
        head = network(state, name).head
        if imprinted:
            features = self.features(state, task.train)
            draws, norm = rng.generator(self.setup.seed, "k-means", task.index), mean_weight_norm(head)
            head.grow(task.num_new, imprint(features, task.train.labels, head.vectors, norm, draws))
        else:
            with rng.seeded(self.setup.seed, "init", task.index):
                head.grow(task.num_new)

    def held(self, task: Task) -> int:
        """Return how many images of old classes are held when a task begins."""
        return self.setup.budget.held(task.num_old) if task.num_exemplars is None else task.num_exemplars

    def rehearse(
        self,
        task: Task,
        images: ImageSet,
        *,
        imprinted: bool = False,
        without: Tensor | None = None,
        new_share: float | None = None,
    ) -> Stage:
        """Return the stage that trains the grown network on new images and exemplars by the method's terms.

        Its streams are `new` and `old`, in each batch in the proportion of the data or with a share of new images. It
        begins by keeping the network as it was, as `old`, and growing the head. Exemplars of the ranks `without`
        are left out. A method replaces what its paper does otherwise.
        """
        size, augment = self.settings.batch_size, self.setup.augment
        held = max(1, self.held(task) - (0 if without is None else len(without) * task.num_old))
        num_new, num_old = split_batch(size, len(images), held, new_share)
        in_proportion, _ = split_batch(size, len(images), held)

        def begin(state: State) -> None:
            state.nets["old"] = network(state).frozen_copy()
            self.grow(state, task, imprinted)

        def streams(state: State) -> Mapping[str, Batches]:
            exemplars = state.memory.as_set(memory_names(task), without=without)
            return {
                "new": Batches(images=images, size=num_new, augment=augment),
                "old": Batches(images=exemplars, size=num_old, augment=augment),
            }

        return replace(
            self.classify(task, images, self.settings.epochs),
            steps=math.ceil(len(images) / in_proportion),  # a share of new images changes the mix, not the work
            streams=streams,
            losses=lambda state, batch: self.terms(task, state, *joined(batch, "new", "old")),
            begin=begin,
            exemplars="old",
            shared_as=None,
        )

    def rebalance(self, task: Task, settings: RebalancingSettings, lr: float, schedule: Schedule) -> Stage:
        """Return the stage that fits the class weights, old and new, to the memory, which holds as many of each class.

        To run after `select`. The rest of the network stays as it is, its batch-norm statistics too.
        """
        held = self.setup.budget.held(task.num_seen)
        size = min(settings.batch_size, held)

        def streams(state: State) -> Mapping[str, Batches]:
            exemplars = state.memory.as_set(memory_names(task))
            return {"memory": Batches(images=exemplars, size=size, augment=self.setup.augment)}

        return Stage(
            name="finetune",
            epochs=settings.finetune_epochs,
            steps=math.ceil(held / size),
            trains=lambda state: [Group(list(network(state).head.weights))],
            streams=streams,
            losses=lambda state, batch: self.terms(task, state, *joined(batch, "memory")),
            optimizer=replace(settings.sgd(), lr=lr),
            schedule=schedule,
            clamp=settings.clamp,
        )

    def select(self, task: Task) -> Stage:
        """Return the stage that shrinks the memory and chooses the new classes' exemplars."""

        def begin(state: State) -> None:
            features = self.features(state, task.train)
            state.memory = state.memory.updated(task.train, features, task.num_seen, self.choose)

        return Stage(name="select", begin=begin)

    def choose(self, features: Tensor, labels: Tensor, quota: int) -> tuple[Tensor, Tensor]:
        """Choose a quota of exemplars of each class by their features: by herding, unless a method does otherwise."""
        return herd(features, labels, quota)


def all_but_old_classes(state: State, name: str = "net") -> list[Group]:
    """Name what trains where the weights of old classes are frozen."""
    net = network(state, name)
    return [Group([*net.lower.parameters(), *net.upper.parameters(), *net.head.block(-1), *net.head.shared()])]


def network(state: State, name: str = "net") -> Network:
    """Return a network of the state as what it is; a checkpoint that was damaged may lack one."""
    if name not in state.nets:
        raise UserError(f"the state holds no network '{name}': its checkpoint is damaged, or no stage has made it yet")
    return cast(Network, state.nets[name])


def by_both(state: State, run: Callable[[Network], T], taught: Callable[[Network], T] | None = None) -> tuple[T, T]:
    """Return what `run` gives of the network, and what it, or `taught`, gives of the old one, without a gradient.

    On a GPU the two passes may run side by side: what they read must outlive the call, as a batch does.
    """
    with beside(state.device, "teaching") as teaching, torch.no_grad():
        theirs = (taught or run)(network(state, "old"))
    ours = run(network(state))
    teaching.join()
    return ours, theirs


def joined(batch: Batch, *streams: str) -> tuple[Tensor, Tensor]:
    """Return the images and the labels of some streams of a batch as one, in the order named."""
    return torch.cat([batch[name].images for name in streams]), torch.cat([batch[name].labels for name in streams])


def split_batch(size: int, num_new: int, num_old: int, new_share: float | None = None) -> tuple[int, int]:
    """Return how many new images and exemplars a batch holds: as many as there are of each, or by a given share."""
    share = num_new / (num_new + num_old) if new_share is None else new_share
    # By eights, where a batch is large: a memory that grows or shrinks a little must not mean another compilation.
    grain = 8 if size >= 64 else 1
    new = min(max(grain * round(size * share / grain), grain), size - grain)
    return new, size - new


def memory_names(task: Task) -> tuple[str, ...]:
    """Return the class names that labels of the memory index."""
    return task.everything.class_names
