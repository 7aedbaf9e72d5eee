"""The command line: what it prints, and one clear line for every mistake."""

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import TINY, call
from tiny_runs import Watch, tiny_experiment

from daydream.cli import run
from daydream.engine.hardware import Hardware
from daydream.experiment.naming import command_of
from daydream.storage.run_folder import RunFolder


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli") / "runs" / "one"
    tiny_experiment().start(folder, Watch())
    return folder


OWN = "from daydream.methods.finetune import Finetune\n\nclass Mine(Finetune):\n    '''Mine.'''\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["run", "--method", "repaly"], "unknown method 'repaly'; did you mean 'replay'?"),
        (["run", "--data", "cifar10O"], "unknown data set 'cifar10O'; did you mean 'cifar10"),
        (["run", "--order", "icral"], "unknown class order 'icral'; did you mean 'icarl'?"),
        (["run", "--order", "icarl"], "orders 100 classes, but the data set has 6"),
        (["run", "--backbone", "resnet23"], "unknown backbone 'resnet23'; did you mean 'resnet32'?"),
        (["run", "--cut", "stage4"], "--cut stage4 is not a stage to cut after"),
        (["run", "--epoch", "3"], "No such option: --epoch"),
        (["run", "--method", "dmc", "--imagine"], "--imagine does not fit method 'dmc': it replays no exemplars"),
        (["run", "--method", "der", "--imagine"], "--imagine does not fit method 'der': a counterpart has features"),
        (
            ["run", "--method", "der", "--pile-teach"],
            "--pile-teach does not fit method 'der': unlabelled images teach the",
        ),
        (
            ["run", "--method", "foster", "--pile-teach"],
            "--pile-teach does not fit method 'foster': unlabelled images teach the",
        ),
        (["run", "--method", "icarl", "--pile-teach"], "--pile-teach does not fit method 'icarl': soft labels are of"),
        (["run", "--method", "gd", "--pile-teach"], "--pile-teach does not fit method 'gd': three teachers judge"),
        (["run", "--method", "gd", "--pile-distill", "1"], "--pile-distill does not fit method 'gd': three teachers"),
        (["run", "--method", "dmc", "--blend", "1"], "--blend does not fit method 'dmc': it carries no parts"),
        (["run", "--no-pile-teach"], "--no-pile-teach: --pile-teach is off by default here, so leave it out"),
        (
            ["run", "--method", "der", "--rotations", "base"],
            "does not fit method 'der': the auxiliary head has no place",
        ),
        (["run", "--method", "dmc", "--erase", "0.5"], "--erase does not fit method 'dmc': it carries no parts"),
        (["run", "--method", "der-pruned", "--sparsity", "-1"], "--sparsity -1.0 must not be negative"),
        (["run", "--method", "der-pruned", "--keep", "1"], "--keep 1.0 must be at least 0 and below 1"),
        (["run", "--method", "der-pruned", "--sharpness", "0"], "--sharpness 0.0 must be at least 1"),
        (["run", "--method", "der-pruned", "--gate-lr", "0"], "--gate-lr 0.0 must be above 0"),
        (["run", "--method", "der-pruned", "--backbone", "efficientnet-lite0+untrained"], "and does not know those of"),
        (["run", "--keep", "0.5"], "--keep is a setting of der-pruned, not of method 'replay'"),
        (["run", "--data", "cifar100", "--image-size", "8"], "--image-size is a setting of data set"),
        (["run", "--epochs", "0"], "--epochs 0 must be at least 1"),
        (["run", "--budget", "per-class"], "takes one of total, per_class"),
        (["run", "--base", "4", "--steps", "4"], "--steps 4 does not divide; steps that do: 1, 2"),
        (["run", "--base", "7"], "--base 7 must lie between 1 and the 6 classes"),
        (["run", "--memory", "0"], "--memory 0: method 'replay' keeps exemplars"),
        (["run", "--memory", "3"], "leaves no exemplar per class once 4 classes are seen"),
        (["run", "--memory", "40"], "has 12 training images, fewer than the 20 exemplars per class"),
        (["run", "--memory", "13", "--budget", "per_class"], "fewer than the 13 exemplars per class"),
        (["run", "--device", "cuda"], "no usable CUDA GPU"),
        (["run", "--device", "abacus"], "--device abacus is not a device"),
        (["run", "--validation", "1.5"], "--validation 1.5 must lie between 0 and 1"),
        (["run", "--base-from", "nowhere"], "nowhere is not a run"),
        (["run", "--method", "nowhere.py:Mine"], "there is no file nowhere.py"),
        (["run", "--data", "cifar100"], "data set 'cifar100' needs --root DIR"),
        (["run", "--data", "cifar100", "--root", "nowhere"], "does not exist"),
        (["resume", "nowhere"], "nowhere is not a run"),
        (["show", "nowhere"], "nowhere is not a run"),
        (["list", "nowhere"], "nowhere is not a folder"),
        (["runn"], "No such command 'runn'"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], says: str
) -> None:
    if "CUDA" in says:
        monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.chdir(tmp_path)
    extra: list[str] = []
    if words[0] == "run":
        given = {word.split("=")[0] for word in words}
        data = [] if "--data" in given else TINY[:4]
        extra = [word for word in [*data, *TINY[4:]] if word.split("=")[0] not in given] + ["--out", "x"]
    code, out, err = call(capsys, *words, *extra)
    assert code == 2
    assert says in err
    assert err.count("\n") == 1, err
    assert out == ""
    assert list(tmp_path.iterdir()) == []


def test_an_output_folder_that_exists(capsys: pytest.CaptureFixture[str], finished: Path, tmp_path: Path) -> None:
    code, _, err = call(capsys, "run", *TINY, "--out", str(finished))
    assert code == 2
    assert f"daydream resume {finished}" in err
    (tmp_path / "letter.txt").write_text("mine")
    code, _, err = call(capsys, "run", *TINY, "--out", str(tmp_path))
    assert code == 2
    assert "is not empty" in err
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def (", "cannot be imported: SyntaxError"),
        ("class Mine: pass", "no method 'Mine'"),
        (OWN.replace("Mine(", "Other("), "it has: Other"),
    ],
)
def test_a_bad_method_file(capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "own.py").write_text(text)
    code, _, err = call(capsys, "run", "--method", f"{tmp_path / 'own.py'}:Mine", *TINY, "--out", str(tmp_path / "run"))
    assert code == 2
    assert says in err
    assert err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_users_own_method_runs_from_anywhere(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    code, out, err = call(capsys, "run", "--method", "own.py:Mine", *TINY, "--out", "run", "--json", "--quiet")
    assert code == 0, err
    assert json.loads(out)["method"] == f"{tmp_path / 'own.py'}:Mine"


def test_an_order_file_stays_known_from_elsewhere(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "order.txt").write_text("5, 4, 3, 2, 1, 0")
    monkeypatch.chdir(tmp_path)
    code, out, err = call(capsys, "run", *TINY, "--order", "order.txt", "--out", "run", "--json", "--quiet")
    assert code == 0, err
    assert json.loads(out)["config"]["run"]["order"] == str(tmp_path / "order.txt")


@pytest.mark.parametrize(("method", "kept"), [("dmc", False), ("der", True)])
def test_a_plan_says_which_accuracies_are_measured(capsys: pytest.CaptureFixture[str], method: str, kept: bool) -> None:
    code, out, err = call(capsys, "run", *TINY, "--method", method, "--dry-run")
    assert code == 0, err
    assert ("CNN and NME are both measured" in out) == kept
    assert ("NME is not measured: no exemplars are kept" in " ".join(out.split())) != kept


def test_run_prints_progress_and_a_table(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, err = call(capsys, "run", *TINY, "--out", str(tmp_path / "run"))
    assert code == 0, err
    assert "task 3: 6 classes, CNN" in out
    assert "memory 12 in total" in out
    assert "NME: average" in out
    assert f"run: {tmp_path / 'run'}" in out


@pytest.mark.parametrize("long", [True, False])
def test_a_long_run_on_a_cpu_is_told_a_faster_way(
    long: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Hardware, "could_be_faster", True)
    monkeypatch.setattr(run, "LONG", 1 if long else 1_000_000)
    code, _, err = call(capsys, "run", *TINY, "--dry-run")
    assert code == 0
    assert ("--precision bf16 --compile" in err) == long


def test_dry_run_writes_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, _ = call(capsys, "run", *TINY, "--out", str(tmp_path / "run"), "--dry-run")
    assert code == 0
    assert "exemplars before" in out
    assert "parameters at inference" in out
    assert not (tmp_path / "run").exists()


def test_help_shows_the_settings_of_the_chosen_method(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--distillation" in call(capsys, "run", "--help")[1]
    joint = call(capsys, "run", "--method", "joint", "--help")[1]
    assert "--kind" in joint
    assert "--distillation" not in joint
    assert "--subset" in call(capsys, "run", "--data", "imagenet-subset", "--help")[1]


def test_list_and_show(capsys: pytest.CaptureFixture[str], finished: Path) -> None:
    _, out, _ = call(capsys, "list", str(finished.parent), "--json")
    assert [row["status"] for row in json.loads(out)] == ["finished"]
    assert "12 total" in call(capsys, "list", str(finished.parent))[1]
    out = call(capsys, "show", str(finished))[1]
    assert "memory 12 total" in out
    assert "daydream run --base 2 --steps 2" in out
    assert json.loads(call(capsys, "show", str(finished), "--json")[1])["average_nme"] is not None


def test_the_command_that_show_prints_gives_the_same_config(
    capsys: pytest.CaptureFixture[str], finished: Path, tmp_path: Path
) -> None:
    words = shlex.split(command_of(RunFolder(finished).config))[1:]
    code, _, err = call(capsys, *words, "--out", str(tmp_path / "run"), "--quiet")
    assert code == 0, err
    assert RunFolder(tmp_path / "run").config == RunFolder(finished).config


def test_resume_of_a_finished_run_says_so(capsys: pytest.CaptureFixture[str], finished: Path) -> None:
    code, out, err = call(capsys, "resume", str(finished))
    assert code == 0
    assert "finished already" in err
    assert "NME: average" in out


def test_names_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(call(capsys, "methods", "--json")[1]).keys() >= {"finetune", "replay", "joint"}
    assert "imagenet-subset" in call(capsys, "datasets")[1]
    assert call(capsys, "--version")[1].startswith("daydream 0.")


def test_remarks_reach_the_user_unless_quiet(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from PIL import Image

    for place in range(40):
        Image.new("RGB", (20, 20), (place * 6, 0, 0)).save(tmp_path / f"{place}.png")
    words = ["run", *TINY, "--method", "imagine", "--unlabeled", f"folder:{tmp_path}", "--dry-run"]
    assert "note: decoded images cached in" in call(capsys, *words)[2]
    (tmp_path / "torn.png").write_bytes(b"torn")
    assert "note: skipped" in call(capsys, *words, "--quiet")[2]
    assert "cached" not in call(capsys, *words, "--quiet")[2]


def test_what_one_damaged_run_says_hides_no_other(
    capsys: pytest.CaptureFixture[str], finished: Path, tmp_path: Path
) -> None:
    shutil.copytree(finished, tmp_path / "good")
    shutil.copytree(finished, tmp_path / "[bad]")
    (tmp_path / "[bad]" / "result.json").write_text("[1]")
    code, out, err = call(capsys, "list", str(tmp_path))
    assert code == 0
    assert "good" in out
    assert "[bad]" not in out
    assert "[bad] is left out" in err
    assert call(capsys, "show", str(tmp_path / "[bad]"))[0] == 2


def test_brackets_in_a_path_are_no_markup(capsys: pytest.CaptureFixture[str], finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "[b] x [" / "run")
    code, out, _ = call(capsys, "list", str(tmp_path))
    assert code == 0
    assert "[b] x [" in out.replace("\n", "")


def test_the_command_of_a_run_is_one_line(
    capsys: pytest.CaptureFixture[str], finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    _, out, _ = call(capsys, "show", str(finished))
    assert out.splitlines()[-1] == command_of(RunFolder(finished).config)


def test_showing_a_run_runs_no_code_that_it_names(
    capsys: pytest.CaptureFixture[str], finished: Path, tmp_path: Path
) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    (run / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    config = json.loads((run / "config.json").read_text())
    config["run"]["method"] = f"{run / 'own.py'}:Replay"
    (run / "config.json").write_text(json.dumps(config))
    for words in (["show", str(run)], ["list", str(tmp_path)], ["report", str(run), "-o", str(tmp_path / "page.html")]):
        code, out, err = call(capsys, *words)
        assert code == 0, err
    _, out, _ = call(capsys, "show", str(run))
    assert f"--method {run / 'own.py'}:Replay" in out
    assert "--batch-size 8" in out
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("file", ["checkpoint/latest.json", "base/latest.json"])
def test_a_damaged_checkpoint_is_one_line(
    capsys: pytest.CaptureFixture[str], finished: Path, tmp_path: Path, file: str
) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    (run / "result.json").unlink()
    (run / file).write_text("{}")
    words = ["resume", str(run)] if "checkpoint" in file else ["run", *TINY, "--base-from", str(run), "--dry-run"]
    code, _, err = call(capsys, *words)
    assert code == 2
    assert f"{file} is damaged: it does not say 'files'" in err


def test_a_plan_looks_at_the_base_task_it_is_to_start_from(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, err = call(capsys, "run", *TINY, "--base-from", str(tmp_path / "nowhere"), "--dry-run")
    assert code == 2
    assert "is not a run" in err


def test_what_the_system_refuses_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, err = call(capsys, "show", str(tmp_path / ("x" * 300)))
    assert code == 2
    assert err.count("\n") == 1


def test_a_reader_that_has_had_enough(finished: Path) -> None:
    words = [sys.executable, "-m", "daydream", "show", str(finished)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
