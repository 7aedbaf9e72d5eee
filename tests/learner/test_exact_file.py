"""An exact model through JSON and safetensors, and files that lie."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from exactly import pictures
from own_images import write_classes
from safetensors.torch import load, save
from torch import Tensor

from daydream.errors import UserError
from daydream.learner import exact, quick
from daydream.learner.exact import ExactModel
from daydream.learner.exact_file import packed, unpacked
from daydream.learner.exact_learner import ExactLearner

PROBE = torch.randn(8, 24, generator=torch.Generator().manual_seed(2))


CASES = 150


def written(model: ExactModel) -> tuple[bytes, bytes]:
    about, tensors = packed(model)
    return json.dumps(about).encode(), save({name: value.contiguous() for name, value in tensors.items()})


def read(content: tuple[bytes, bytes]) -> ExactModel:
    return unpacked(json.loads(content[0]), load(content[1]))


def taught(keep: bool = True) -> ExactModel:
    given = pictures()
    return given.of("c", "d").taught(given.of("a", "b").taught(keep_features=keep))


@pytest.mark.parametrize("keep", [True, False])
def test_a_model_comes_back_as_it_was(keep: bool) -> None:
    model = taught(keep)
    back = read(written(model))
    assert back.names == model.names
    assert torch.equal(exact.scores(back, PROBE), exact.scores(model, PROBE))
    assert back.judged.temperature == model.judged.temperature
    assert back.judged.accuracy == model.judged.accuracy
    assert exact.undo(back).names == ("a", "b")
    given = pictures((3,), draw=7)
    after = [exact.learn(m, "net", ("new",), given.labels, given.digests, given.features) for m in (back, model)]
    assert torch.equal(exact.scores(after[0], PROBE), exact.scores(after[1], PROBE))


def test_nothing_of_what_was_forgotten_is_written() -> None:
    model = taught()
    gone = exact.pictures_of(model, "b")
    assert model.known.features is not None
    feature, digest = model.known.features[gone][0].numpy().tobytes(), model.known.digests[gone][:1].numpy().tobytes()
    before = written(model)
    assert feature in before[1]
    assert digest in before[1]
    after = written(exact.forget(model, gone))
    assert feature not in after[1]
    assert digest not in after[1]
    assert b'"b"' not in after[0]


LIES: list[tuple[str, Any]] = [
    ("names", [[]]),
    ("names", [["a", "a", "c", "d"], ["a", "b"]]),
    ("names", [["a", "b", "c", "d"]] * 9),
    ("temperature", -1.0),
    ("accuracy", [1.0]),
    ("accuracy", ["", "10", None, None]),
    ("strength", "much"),
    ("projection", [10**9, 0]),
]


@pytest.mark.parametrize(("key", "value"), LIES)
def test_words_that_do_not_fit_are_refused(key: str, value: Any) -> None:
    about, tensors = packed(taught())
    with pytest.raises(UserError):
        unpacked({**about, key: value}, tensors)


def lies(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    labels, digests, features = (tensors[f"state0/{part}"] for part in ("labels", "digests", "features"))
    return {
        "state0/labels": labels + 1,
        "state0/digests": digests[:-1],
        "state0/features": features * torch.nan,
        "weight": tensors["weight"][:, :-1],
        "state1/digests": tensors["state1/digests"] + 1,
    }


@pytest.mark.parametrize("name", ["state0/labels", "state0/digests", "state0/features", "weight", "state1/digests"])
def test_tensors_that_do_not_fit_are_refused(name: str) -> None:
    about, tensors = packed(taught())
    with pytest.raises(UserError):
        unpacked(about, {**tensors, name: lies(tensors)[name]})


def test_a_file_of_changed_bytes_is_read_or_refused_in_one_line(tmp_path: Path) -> None:
    torch.manual_seed(0)
    learner = ExactLearner.create("resnet10", image_size=16)
    learner.learn(write_classes(tmp_path / "photos", range(2), 4))
    learner.save(tmp_path / "m")
    whole = (tmp_path / "m").read_bytes()
    header = int.from_bytes(whole[:8], "little")
    refused: list[str] = []
    for number in range(CASES):
        dice = random.Random(number)
        content = bytearray(whole)
        for _ in range(dice.randint(1, 3)):
            place = dice.randrange(8, 8 + header) if dice.random() < 0.8 else dice.randrange(len(content))
            content[place] = dice.choice([dice.randrange(256), *b'0123456789-{}[]":,n'])
        if dice.random() < 0.2:
            del content[dice.randrange(len(content)) :]
        (tmp_path / "m").write_bytes(bytes(content))
        try:
            back = ExactLearner.load(tmp_path / "m")
            assert back.probabilities([]).shape == (0, len(back.names))
            back.undo() if back.taught.earlier else None
        except UserError as error:
            refused.append(str(error))
        quick.opened(tmp_path / "m")
    assert len(refused) > CASES / 3
    assert not [line for line in refused if "\n" in line]
