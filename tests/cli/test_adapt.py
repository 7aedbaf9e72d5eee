"""`learn --adapt`: both numbers are said, what adapts is kept or not, and there is a way back."""

import json
from pathlib import Path

import pytest
from command_line import call
from own_images import with_random_weights, write_classes

from daydream.learner import adapting, settings
from daydream.learner.adapting import Trial

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("better", [False, True])
def test_both_numbers_are_said_and_the_better_is_kept(
    better: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_random_weights(monkeypatch)
    monkeypatch.setattr(adapting, "ENOUGH", 6)
    monkeypatch.setattr(settings, "EPOCHS", (1, 1))
    monkeypatch.setattr(Trial, "better", property(lambda self: better))
    model, a = str(tmp_path / "model.daydream"), str(write_classes(tmp_path / "a", range(2), 6, size=32))
    code, out, err = call(capsys, "learn", model, a, "--adapt", "auto", "--image-size=32", "--device=cpu")
    assert code == 0, err
    assert "% right on 2 pictures that neither saw, exact: " in out
    assert ("lessons are no longer exact, the file keeps pictures (--adapt off goes back)" in out) == better
    assert ("so it stays exact" in out) != better
    _, out, _ = call(capsys, "classes", model, "--json")
    assert json.loads(out)["kind"] == ("adapting" if better else "exact")
    _, out, _ = call(capsys, "classes", model)
    assert ("It adapted, so its lessons are not exact" in out) == better
    for label, word in ((2, "auto" if better else ""), (3, "off")):
        folder = str(write_classes(tmp_path / str(label), [label], 6, size=32))
        words = [f"--adapt={word}"] if word else []
        code, _, err = call(capsys, "learn", model, folder, *words, "--quiet", "--device=cpu")
        assert code == 0, err
        _, out, _ = call(capsys, "classes", model, "--json")
        found = json.loads(out)
        assert (found["kind"], len(found["classes"])) == (
            "adapting" if better and word != "off" else "exact",
            label + 1,
        )


def test_what_cannot_be_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_random_weights(monkeypatch)
    model, a = str(tmp_path / "model.daydream"), str(write_classes(tmp_path / "a", range(2), 6))
    code, out, err = call(capsys, "learn", model, a, "--adapt", "maybe")
    assert (code, out, err) == (2, "", "daydream: --adapt maybe is neither auto nor off\n")
    tiny = ["--method=replay", "--backbone=resnet10", "--image-size=16", "--epochs=1", "--device=cpu"]
    for word in ("auto", "off"):
        code, out, err = call(capsys, "learn", model, a, *tiny, "--adapt", word)
        assert (code, out) == (2, "")
        assert err == f"daydream: --adapt {word}: {model} has no exact model; without --method a new model is exact\n"
    assert not Path(model).exists()
