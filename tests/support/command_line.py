"""The command line, called in this process."""

import pytest

from daydream.cli.main import main

TINY = [
    "--classes=6", "--train-per-class=12", "--test-per-class=6", "--image-size=16", "--backbone=resnet10", "--base=2",
    "--steps=2", "--memory=12", "--base-epochs=1", "--epochs=1", "--batch-size=8",
]  # fmt: skip


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(words)
    out, err = capsys.readouterr()
    assert isinstance(stop.value.code, int)
    return stop.value.code, out, err
