"""iCaRL (Rebuffi et al., CVPR 2017): one sigmoid per class, trained towards the old network's answers; nearest means.

Equations by the paper's Algorithm 3, numbers by its released Theano code. That code averages the loss over 100 outputs
from the start, classes still to come having target 0, and its learning rate 2.0 belongs to that mean; a mean over the
classes seen, as in a later port, makes each output's gradient twice as large at 50 classes of 100. Here the sum over
the classes seen is divided by the number of classes of the whole stream, so that each output has the gradient of the
original. It also means that the rate suits streams of about 100 classes: a stream of ten wants a lower one.

Different from the original: outputs of classes still to come do not exist, so they are not trained towards 0, and start
fresh when their classes arrive; a batch holds new images and exemplars in fixed numbers, in the proportion of the data.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from torch import Tensor

from daydream.methods.method import Method, RehearsalSettings, by_both, joined, network, unclamped
from daydream.protocol.stream import Task
from daydream.settings import setting
from daydream.stages import schedules
from daydream.stages.losses import overwritten_bce
from daydream.stages.stage import Batch, Stage, State

FALLS = schedules.step_down((49, 63), factor=0.2, of=70)


@dataclass(frozen=True, kw_only=True)
class ICaRLSettings(RehearsalSettings):
    """Settings of iCaRL."""

    base_epochs: int = setting(70, "epochs of the base task (released code)")
    epochs: int = setting(70, "epochs of each increment (released code)")
    lr: float = setting(2.0, "learning rate, divided by 5 after 49/70 and 63/70 of the epochs (released code)")
    weight_decay: float = setting(2e-5, "weight decay (released code: 1e-5 times the sum of squares)", expert=True)
    clamp: float | None = unclamped()


class ICaRL(Method[ICaRLSettings]):
    """Binary cross-entropy on new images and exemplars, old classes' targets overwritten by the old network."""

    Settings = ICaRLSettings
    head = "linear"
    refuses = MappingProxyType(
        {
            "imagine": "its classes are sigmoids, each by itself, with no mean that counterparts could join",
            "pile_teach": "soft labels are of a softmax, and its classes are sigmoids, each by itself",
            "pile_distill": "it distils answers, on every image, and no features",
        }
    )

    def schedule(self, epoch: int, epochs: int) -> float:
        return FALLS(epoch, epochs)

    def classification(self, state: State, z: Tensor, labels: Tensor) -> Tensor:
        scores: Tensor = network(state).head(z)
        return overwritten_bce(scores, labels, None, scores.shape[1])

    def stages(self, task: Task) -> list[Stage]:
        return [self.base(task) if task.is_base else self.increment(task), self.select(task)]

    def base(self, task: Task) -> Stage:
        """Return the stage that trains a fresh network on one-hot targets."""

        def losses(state: State, batch: Batch) -> Mapping[str, Tensor]:
            new = batch["new"]
            return {"bce": overwritten_bce(network(state)(new.images), new.labels, None, task.num_classes)}

        stage = self.classify(task, task.train, self.settings.base_epochs)
        recipe = f"binary cross-entropy, mean over {task.num_classes} classes; rate / 5 at 49 and 63 of 70"
        return replace(stage, losses=losses, shared_as={**(stage.shared_as or {}), "recipe": recipe})

    def increment(self, task: Task) -> Stage:
        """Return the stage that learns new classes from labels and old ones from the old network, on every image."""

        def losses(state: State, batch: Batch) -> Mapping[str, Tensor]:
            images, labels = joined(batch, "new", "old")
            scores, old_scores = by_both(state, lambda net: net(images))
            return {"bce": overwritten_bce(scores, labels, old_scores, task.num_classes)}

        return replace(self.rehearse(task, task.train), losses=losses)
