"""Exported files give the network's own scores in other programs, and say how to prepare a picture for them."""

import json
import resource
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from daydream import __version__
from daydream.data.augment import Prepare
from daydream.errors import UserError
from daydream.export.onnx import export_onnx, export_state_dict
from daydream.nets.heads import HEADS
from daydream.nets.network import Network
from daydream.nets.resnet import BACKBONES

MEAN, STD, NAMES = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3), ("ant", "bée", "c,d", "e", "f")


def random_network(backbone: str = "resnet10", head: str = "linear") -> Network:
    """Build a network in which no part is silent: a fresh one's blocks are their shortcuts."""
    torch.manual_seed(0)
    net = Network(backbone, head, (3, 2))
    for part in net.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.uniform_(part.weight, 0.5, 1.0)
            nn.init.normal_(part.bias, 0, 0.3)
            assert part.running_mean is not None
            nn.init.normal_(part.running_mean, 0, 0.3)
    return net


def write(net: nn.Module, path: Path, size: int = 32) -> onnxruntime.InferenceSession:
    export_onnx(net, path, size, MEAN, STD, NAMES, 1.5)
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


@torch.no_grad()
def assert_equal_scores(net: nn.Module, session: onnxruntime.InferenceSession, size: int = 32) -> None:
    for count in (1, 2, 5):
        x = torch.randn(count, 3, size, size)
        [found] = session.run(["logits"], {"images": x.numpy()})
        torch.testing.assert_close(torch.from_numpy(found), net(x), rtol=0, atol=1e-4)
        assert found.shape == (count, 5)


@pytest.mark.parametrize(
    ("backbone", "head"),
    [*((backbone, "linear") for backbone in BACKBONES), *(("resnet10", h) for h in HEADS if h != "linear")],
)
def test_onnxruntime_gives_the_networks_scores(tmp_path: Path, backbone: str, head: str) -> None:
    net = random_network(backbone, head).eval()
    assert_equal_scores(net, write(net, tmp_path / "a.onnx"))


def test_an_odd_image_size(tmp_path: Path) -> None:
    net = random_network("resnet32", "cosine").eval()
    assert_equal_scores(net, write(net, tmp_path / "a.onnx", 21), 21)


def test_the_network_stays_as_it_is(tmp_path: Path) -> None:
    net = random_network().train()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    session = write(net, tmp_path / "a.onnx")
    assert all(module.training for module in net.modules())
    assert all(p.requires_grad for p in net.parameters())
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    assert_equal_scores(net.eval(), session)


def test_the_metadata_suffices_to_judge_a_picture(tmp_path: Path) -> None:
    """Prepare an image by what the file says, in numpy, and get our own probabilities."""
    net = random_network().eval()
    session = write(net, tmp_path / "a.onnx")
    said = session.get_modelmeta().custom_metadata_map
    size, mean, std = (json.loads(said[key]) for key in ("image_size", "mean", "std"))
    assert (said["channels"], said["layout"], json.loads(said["range"])) == ("RGB", "NCHW", [0, 1])
    assert (size, json.loads(said["short_side"])) == (32, 32)
    assert "centre crop" in said["preprocessing"]
    assert json.loads(said["class_names"]) == list(NAMES)
    assert said["probabilities"] == "softmax(logits / temperature)"

    picture = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    x = ((picture / 255 - np.array(mean)) / np.array(std)).astype(np.float32).transpose(2, 0, 1)[None]
    z = session.run(None, {"images": x})[0][0] / json.loads(said["temperature"])
    found = np.exp(z) / np.exp(z).sum()

    images = torch.from_numpy(picture).permute(2, 0, 1)[None]
    with torch.no_grad():
        expected: Tensor = (net(Prepare(MEAN, STD, 32)(images)) / 1.5).softmax(1)[0]
    assert np.abs(found - expected.numpy()).max() < 1e-4


def test_a_picture_scaled_larger_than_it_is_cropped(tmp_path: Path) -> None:
    export_onnx(random_network(), tmp_path / "a.onnx", 32, MEAN, STD, NAMES, 1.0, short_side=37)
    said = {entry.key: entry.value for entry in onnx.load(tmp_path / "a.onnx").metadata_props}
    assert (said["image_size"], said["short_side"]) == ("32", "37")


def test_the_file_is_sound_and_holds_the_network_alone(tmp_path: Path) -> None:
    net = random_network()
    write(net, tmp_path / "a.onnx")
    model = onnx.load(tmp_path / "a.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert (model.producer_name, model.producer_version) == ("daydream", __version__)
    assert [len(model.graph.input), len(model.graph.output)] == [1, 1]
    held = sum(int(np.prod(weight.dims)) for weight in model.graph.initializer)
    assert held <= sum(value.numel() for value in net.state_dict().values())
    assert [path.name for path in tmp_path.iterdir()] == ["a.onnx"]


def test_without_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(UserError, match=r"needs the package onnx: pip install 'daydream\[onnx\]'"):
        export_onnx(random_network(), tmp_path / "a.onnx", 32, MEAN, STD, NAMES, 1.0)


def test_weights_load_by_their_names(tmp_path: Path) -> None:
    net = random_network(head="proxy").eval()
    export_state_dict(net, tmp_path / "a.safetensors", {"classes": json.dumps(NAMES)})
    twin = Network(**net.config())
    twin.load_state_dict(load_file(tmp_path / "a.safetensors"))
    x = torch.randn(2, 3, 32, 32)
    assert torch.equal(twin.eval()(x), net(x))
    with safe_open(tmp_path / "a.safetensors", framework="pt") as file:
        assert file.metadata() == {"classes": json.dumps(NAMES)}


@pytest.mark.parametrize("kind", ["onnx", "safetensors"])
def test_what_cannot_be_written_leaves_what_was_there(tmp_path: Path, kind: str) -> None:
    net, path = random_network(), tmp_path / "a"

    def export(to: Path) -> None:
        if kind == "onnx":
            export_onnx(net, to, 32, MEAN, STD, NAMES, 1.0)
        else:
            export_state_dict(net, to, {})

    with pytest.raises(UserError, match="nowhere/a cannot be written: No such file"):
        export(tmp_path / "nowhere" / "a")
    path.write_text("what was there")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))  # as a disk that fills up
    try:
        with pytest.raises(UserError, match="cannot be written"):
            export(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_text() == "what was there"
    assert [found.name for found in tmp_path.iterdir()] == ["a"]
