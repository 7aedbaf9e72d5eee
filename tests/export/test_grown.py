"""Extractors side by side leave a run as one network: the same scores from ONNX and from safetensors."""

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from tiny_runs import StopIn, Watch, tiny_experiment

from daydream.cli.main import main
from daydream.engine import Interrupted
from daydream.errors import UserError
from daydream.export.classifier import load_exported
from daydream.export.onnx import export_state_dict
from daydream.nets.extractor import Extractor, Joined, whole
from daydream.protocol.inference import over_images
from daydream.storage.run_folder import RunFolder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("grown") / "run"
    tiny_experiment("der").start(folder, Watch())
    return folder


def scores_of(run: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Return prepared test images and what the run's method says of them."""
    experiment = tiny_experiment("der")
    found = experiment.restore(RunFolder(run))
    assert found is not None
    test, prepare = experiment.stream.test, experiment.method.setup.prepare
    _, scores = over_images(lambda x: experiment.method.predict(found[2], x), test, prepare)
    return test.pixels.fetch(torch.arange(len(test))), scores


def export(run: Path, path: Path, how: str = "--safetensors") -> None:
    with pytest.raises(SystemExit) as stop:
        main(["export", str(run), how, str(path)])
    assert stop.value.code == 0


def test_both_files_give_the_runs_own_scores(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images, scores = scores_of(run)
    export(run, tmp_path / "net.safetensors")
    result = RunFolder(run).result
    assert result is not None
    assert f"{result['parameters'] + result['head_parameters']:,} parameters" in capsys.readouterr().out
    classifier = load_exported(tmp_path / "net.safetensors")
    assert isinstance(classifier.network, Joined)
    torch.testing.assert_close(classifier.scores(images), scores, rtol=0, atol=1e-5)
    export(run, tmp_path / "net.onnx", "--onnx")
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx", providers=["CPUExecutionProvider"])
    [found] = session.run(["logits"], {"images": classifier.prepare(images).numpy()})
    assert np.abs(found - scores.numpy()).max() < 1e-4


def test_a_run_stopped_while_it_grows_can_be_exported(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        tiny_experiment("der").start(tmp_path / "run", StopIn(1, "expand"))
    images, scores = scores_of(tmp_path / "run")
    export(tmp_path / "run", tmp_path / "net.safetensors")
    classifier = load_exported(tmp_path / "net.safetensors")
    torch.testing.assert_close(classifier.scores(images), scores, rtol=0, atol=1e-5)
    assert len(classifier.class_names) == 4


def test_a_network_of_another_kind_is_refused(tmp_path: Path) -> None:
    about = {"kind": "Tower", "network": {}}
    net = Extractor("resnet10", "plain", (2,))
    path = tmp_path / "net.safetensors"
    export_state_dict(net, path, {"format": "daydream-network-2", "about": json.dumps(about)})
    with pytest.raises(UserError, match="a network of kind 'Tower'"):
        load_exported(path)


def test_the_whole_is_what_its_parts_say_end_to_end() -> None:
    torch.manual_seed(0)
    nets = {
        "past.0": Extractor("resnet10", "plain"),
        "past.1": Extractor("resnet10", "plain"),
        "net": Extractor("resnet10", "plain", (3, 2), inputs=192),
    }
    for net in nets.values():
        for part in net.modules():
            if isinstance(part, torch.nn.BatchNorm2d):
                torch.nn.init.uniform_(part.weight, 0.5, 1.0)
        net.eval()
    joined, x = whole(nets), torch.randn(4, 3, 16, 16)
    with torch.no_grad():
        z = torch.cat([nets[name].features(x) for name in ("past.0", "past.1", "net")], dim=1)
        assert torch.equal(joined.features(x), z)
        torch.testing.assert_close(joined(x), z @ nets["net"].head.weight()[:, 0].T)
    assert isinstance(joined, Joined)
    twin = Joined.of_configs(json.loads(json.dumps(joined.config()))["extractors"]).eval()
    twin.load_state_dict(joined.state_dict())
    with torch.no_grad():
        assert torch.equal(twin(x), joined(x))
    assert whole({"net": nets["past.0"]}) is nets["past.0"]
    with pytest.raises(AssertionError, match="does not fit"):
        whole({"past.0": nets["past.0"], "net": nets["net"]})
