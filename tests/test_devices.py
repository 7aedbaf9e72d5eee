"""A learner keeps its tensors on its device: lessons on one that a machine without a GPU can play."""

import contextlib
from pathlib import Path
from typing import Any

import pytest
import torch
from claimed_device import Claimed, MixedDevices, claimed_device
from own_images import TINY_LESSON, TINY_MODEL, names, write_classes, write_pile

from daydream import Learner
from daydream.engine import Hardware
from daydream.methods import load_method

pytestmark = pytest.mark.slow


def test_the_device_refuses_what_a_gpu_refuses() -> None:
    with claimed_device() as device:
        there, here = torch.zeros(3, device=device), torch.arange(3)
        assert isinstance(there, Claimed)
        assert isinstance(there[here], Claimed), "an index may be on the CPU"
        assert (there + torch.tensor(1.0)).cpu().tolist() == [1.0] * 3, "so may a number"
        assert not isinstance(there.to("cpu"), Claimed)
        with pytest.raises(MixedDevices):
            there + here
        with pytest.raises(MixedDevices):
            here[there.long()]
        with pytest.raises(MixedDevices):
            torch.stack([there[0], torch.tensor(1.0)])
        with pytest.raises(MixedDevices):
            there.numpy()


@pytest.fixture
def lent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let learners find the device."""

    def chosen(name: str, *_: Any, **__: Any) -> Hardware:
        return Hardware(torch.device("meta"), "fp32", compile=False, capture=False)

    monkeypatch.setattr(Hardware, "choose", chosen)
    monkeypatch.setattr(Hardware, "autocast", lambda hardware: contextlib.nullcontext())  # torch knows none for it


@pytest.mark.usefixtures("lent")
@pytest.mark.filterwarnings("ignore:for .* copying from a non-meta parameter")  # these are filled, unlike meta's own
@pytest.mark.parametrize("method", ["imagine", "mixup", "finetune", "bic", "dmc", "gd"])
def test_lessons_mix_no_devices(method: str, tmp_path: Path) -> None:
    kind = load_method(method)
    pile = write_pile(tmp_path / "pile", 20) if kind.imagines or kind.needs_pile else None
    a, b = write_classes(tmp_path / "a", range(2), 6), write_classes(tmp_path / "b", range(1, 4), 6, first=6)
    again, test = (
        write_classes(tmp_path / "again", [0], 4, first=6),
        write_classes(tmp_path / "t", range(4), 3, test=True),
    )
    with claimed_device():
        learner = Learner.create(**{**TINY_MODEL, "method": method})
        learner.learn(a, pile, **TINY_LESSON)
        weights = [weight for net in learner.taught.state.nets.values() for weight in net.parameters()]
        assert all(isinstance(weight, Claimed) for weight in weights)
        learner.save(tmp_path / "model.daydream")
        learner = Learner.load(tmp_path / "model.daydream")
        learner.learn(b, **TINY_LESSON)
        learner.learn(again, **TINY_LESSON)
        assert sum(learner.test(test).images.values()) == 12
        assert learner.predict(next(a.rglob("*.png")))[0][0] in names(range(4))
        learner.export_state_dict(tmp_path / "plain.safetensors")
