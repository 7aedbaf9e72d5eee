"""The exact model beside one that adapted from it: taught the same pictures, renamed as it is, and there to go back to.

Pictures of an adapted model are stored as the exact one sees them, so that both call them by the same digests.
"""

from dataclasses import replace

import torch

from daydream.learner import exact, exact_file, history
from daydream.learner.embedding import Embedder, pixel_digests
from daydream.learner.intake import Intake, joined

CPU = torch.device("cpu")


def taught_too(data: bytes, intake: Intake) -> bytes:
    """Return the exact model's file after it learnt what came, held-out pictures included."""
    content, images = exact_file.of_bytes(data, CPU), joined(intake.train, intake.held_out)
    pixels, before = images.pixels.to(CPU), content.model
    features, digests = Embedder(content.net, content.prepare).computed(pixels), pixel_digests(pixels)
    model = exact.learn(before, before.embedding, intake.names, images.labels.cpu(), digests, features)
    if model is before:
        return data
    said = {
        "new": len(model.names) - len(before.names),
        "images": len(model.known.labels) - len(before.known.labels),
    }
    return _changed(content, model, history.recorded(content.history, model, "lesson", **said))


def renamed_too(data: bytes, name: str, to: str) -> bytes:
    """Return the exact model's file with another name for a class."""
    content = exact_file.of_bytes(data, CPU)
    model = exact.rename(content.model, name, to)
    return _changed(content, model, history.recorded(history.renamed(content.history, {name: to}), model, "rename"))


def _changed(content: exact_file.Content, model: exact.ExactModel, past: history.History) -> bytes:
    earlier = (*content.earlier, content.history)[-len(model.earlier) :]
    return exact_file.as_bytes(replace(content, model=model, history=past, earlier=earlier))
