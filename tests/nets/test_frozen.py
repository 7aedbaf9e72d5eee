"""Networks of timm's that stay as they are: with a stand-in for timm, and a real vision transformer if it imports."""

import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from own_images import write_classes
from timm_here import real_timm
from torch import Tensor, nn

from daydream import ExactLearner
from daydream.errors import UserError
from daydream.learner import opening
from daydream.nets.network import Network, check_backbone

CONFIG = {"architecture": "vit", "input_size": (3, 24, 24), "mean": (0.4, 0.5, 0.6), "std": (0.1, 0.2, 0.3)}
PUBLISHED = 0.25
UNCACHED = "are not in the local cache of the Hugging Face Hub, and cannot be fetched here"


class ViT(nn.Module):
    """As a vision transformer: patches of fixed number, no map anywhere, features [B, D]."""

    num_features = 6

    def __init__(self, published: bool) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 6, 8, stride=8)
        self.places = nn.Parameter(torch.randn(9, 6))
        self.pretrained_cfg = {**CONFIG, "license": "mit"}
        if published:
            nn.init.constant_(self.patches.weight, PUBLISHED)

    def forward(self, x: Tensor) -> Tensor:
        assert x.shape[2:] == (24, 24), f"Input height ({x.shape[2]}) doesn't match model (24)."
        found: Tensor = (self.patches(x).flatten(2).transpose(1, 2) + self.places).tanh().mean(1)
        return found


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a small package in the place of timm, which has two networks' weights and no network to fetch others by."""

    def create_model(name: str, pretrained: bool = False, **rest: Any) -> ViT:
        assert rest == {"num_classes": 0}
        if pretrained and "absent" in name:
            raise RuntimeError("cannot find the requested files\nin the local cache")
        torch.manual_seed(3)
        return ViT(pretrained)

    fake: Any = types.ModuleType("timm")
    fake.__version__, fake.create_model = "9.9", create_model
    fake.is_model = lambda name: name in ("vit", "absent")
    fake.list_models = lambda: ["vit", "absent"]
    fake.get_pretrained_cfg = lambda name: types.SimpleNamespace(license="mit")
    monkeypatch.setitem(sys.modules, "timm", fake)


@pytest.mark.parametrize("name", ["timm:vit+pretrained", "hf-hub:someone/vit"])
def test_pictures_are_prepared_as_the_weights_say(name: str, tmp_path: Path) -> None:
    learner = ExactLearner.create(name)
    look = learner.embed.prepare
    assert (look.mean, look.std, look.size) == (CONFIG["mean"], CONFIG["std"], 24)
    x = torch.randn(2, 3, 24, 24)
    torch.manual_seed(3)
    assert torch.allclose(learner.embed.net.features(x), ViT(True).eval()(x))
    folder = write_classes(tmp_path / "a", range(2), count=4)
    learner.learn(folder)
    learner.save(tmp_path / "m")
    again = ExactLearner.load(tmp_path / "m")
    picture = next(folder.rglob("*.png"))
    assert torch.allclose(again.probabilities(picture), learner.probabilities(picture))
    assert again.embed.net.kinds[0] == "frozen:timm:vit"
    assert name in again.about
    assert "frozen, at 24 pixels" in again.about


def test_licence_and_size_are_shown() -> None:
    assert "published weights (licence: mit), 0.0 M parameters" in ExactLearner.create("timm:vit+pretrained").about
    about = ExactLearner.create("hf-hub:someone/vit").about
    assert "published weights (licence: on its page of the Hugging Face Hub), 0.0 M parameters" in about


@pytest.mark.parametrize(
    ("name", "size", "said"),
    [
        (
            "timm:absent+pretrained",
            None,
            UNCACHED,
        ),
        (
            "hf-hub:someone/absent",
            None,
            UNCACHED,
        ),
        ("timm:vit+pretrained", 32, "does not take pictures of 32 pixels"),
        ("timm:other+pretrained", None, "has no network 'other'"),
    ],
)
def test_what_cannot_be_had_is_said_in_one_line(name: str, size: int | None, said: str) -> None:
    with pytest.raises(UserError) as caught:
        ExactLearner.create(name, image_size=size)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_nothing_else_takes_them() -> None:
    with pytest.raises(UserError, match="has no maps to cut or imagine: only `learn` without --method can use it"):
        check_backbone("hf-hub:someone/vit", "stage3")
    with pytest.raises(UserError, match="unknown backbone"):
        check_backbone("frozen:timm:vit", "stage3")


def test_which_learner_a_name_asks_for(caplog: pytest.LogCaptureFixture) -> None:
    assert opening.learner_for(None, "hf-hub:someone/vit") == "exact"
    assert opening.learner_for(None, "timm:vit+pretrained") == "exact"
    with pytest.raises(UserError, match="unknown backbone 'nonsense'"):
        opening.learner_for(None, "nonsense")
    assert "is trained" not in caplog.text


def test_a_real_vision_transformer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "timm")
    timm = real_timm()
    net = Network("frozen:timm:vit_tiny_patch16_224", "linear").eval()
    whole = timm.create_model("vit_tiny_patch16_224", num_classes=0).eval()
    whole.load_state_dict(net.upper.get_submodule("stage4.0.net").state_dict())
    x = torch.randn(1, 3, 224, 224)
    with torch.no_grad():
        assert torch.allclose(net.features(x), whole(x), atol=1e-5)
