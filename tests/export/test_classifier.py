"""An exported network judges images as its run does, and holds nothing else."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tiny_runs import Watch, tiny_experiment

from daydream.cli.main import main
from daydream.cli.models import check_targets
from daydream.errors import UserError
from daydream.export.classifier import load_exported
from daydream.protocol.inference import over_images
from daydream.storage.run_folder import RunFolder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export") / "run"
    tiny_experiment("imagine").start(folder, Watch())
    return folder


def exported(run: Path, path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as stop:
        main(["export", str(run), "-o", str(path)])
    out, err = capsys.readouterr()
    assert stop.value.code == 0, err
    return out


def test_its_scores_equal_the_runs_own(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exported(run, tmp_path / "network.safetensors", capsys)
    classifier = load_exported(tmp_path / "network.safetensors")
    experiment = tiny_experiment("imagine")
    found = experiment.restore(RunFolder(run))
    assert found is not None
    test = experiment.stream.test
    _, scores = over_images(lambda x: experiment.method.predict(found[2], x), test, experiment.method.setup.prepare)
    torch.testing.assert_close(classifier.scores(test.pixels.fetch(torch.arange(len(test)))), scores)
    assert classifier.class_names == test.class_names


def test_no_generator_leaves_the_run(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = exported(run, tmp_path / "network.safetensors", capsys)
    result = RunFolder(run).result
    assert result is not None
    weights = load_file(tmp_path / "network.safetensors")
    assert {name.split(".")[0] for name in weights} == {"lower", "upper", "head"}
    assert f"{result['parameters'] + result['head_parameters']:,} parameters" in out


def test_bad_input(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["export", str(tmp_path)])
    assert stop.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1
    (tmp_path / "torn.safetensors").write_bytes(b"torn")
    for path in (tmp_path / "torn.safetensors", next((run / "checkpoint").glob("net.net-*"))):
        with pytest.raises(UserError, match=path.name):
            load_exported(path)


def test_nothing_is_written_over_what_is_exported(tmp_path: Path) -> None:
    model = tmp_path / "m.daydream"
    model.write_bytes(b"all it knows")
    (tmp_path / "link").symlink_to(model)
    for target in (model, tmp_path / "link"):
        with pytest.raises(UserError, match="is the model itself, which would be lost"):
            check_targets(model, [target])
    with pytest.raises(UserError, match="cannot be both ONNX and safetensors"):
        check_targets(model, [tmp_path / "x", tmp_path / "." / "x"])
    check_targets(model, [tmp_path / "x", tmp_path / "y"])
