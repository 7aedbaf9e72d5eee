"""A model as a file: it comes back as it was, survives failed writes, and no damage or malice gets past its reader."""

import errno
import io
import json
import random
import struct
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from own_images import TINY_LESSON, drawn, tiny_learner, write_classes, write_pile
from safetensors.torch import load, save

from daydream import Learner
from daydream.errors import UserError
from daydream.learner import model_file

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    learner = tiny_learner()
    learner.learn(write_classes(folder / "a", range(2), 6), write_pile(folder / "pile", 20), **TINY_LESSON)
    learner.learn(write_classes(folder / "b", range(2, 4), 6), **TINY_LESSON)
    learner.save(folder / "model.daydream")
    return folder / "model.daydream"


def members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {entry.filename: archive.read(entry) for entry in archive.infolist()}


def zipped(content: dict[str, bytes], how: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", how) as archive:
        for name, data in content.items():
            archive.writestr(zipfile.ZipInfo(name), data, how)
    return file.getvalue()


def test_comes_back_as_it_was(made: Path, tmp_path: Path) -> None:
    first = Learner.load(made, device="cpu")
    first.save(tmp_path / "again.daydream")
    assert (tmp_path / "again.daydream").read_bytes() == made.read_bytes()
    second = Learner.load(tmp_path / "again.daydream", device="cpu")
    test = drawn().test
    assert torch.equal(first.judged(test), second.judged(test))
    assert first.classes == second.classes
    assert first.taught.num_generators == 4
    assert set(first.taught.state.nets) == {"net", "generators"}, "a lesson's own networks stay behind"


def test_nothing_but_json_and_safetensors_stored_as_they_are(made: Path) -> None:
    with zipfile.ZipFile(made) as archive:
        assert [entry.filename for entry in archive.infolist()] == list(model_file.MEMBERS)
        assert all(entry.compress_type == zipfile.ZIP_STORED for entry in archive.infolist())
        about = json.loads(archive.read("model.json"))
    assert about["format"] == 2
    assert {record["name"] for record in about["classes"]} == set(drawn().train.class_names[:4])
    assert about["preprocessing"]["size"] == 16


def test_a_failed_write_leaves_the_old_file(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.daydream"
    path.write_bytes(made.read_bytes())

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    model = model_file.read(path, CPU)
    monkeypatch.setattr(zipfile.ZipFile, "writestr", full)
    with pytest.raises(UserError, match=r"No space left on device; the model that was there is untouched"):
        model_file.write(path, model)
    assert path.read_bytes() == made.read_bytes()
    assert [file.name for file in tmp_path.iterdir()] == ["model.daydream"]


def changed(made: Path, change: Callable[[dict[str, Any]], None]) -> bytes:
    content = members(made)
    about = json.loads(content["model.json"])
    change(about)
    return zipped({**content, "model.json": json.dumps(about).encode()})


def widened(made: Path) -> bytes:
    """A file whose network would take terabytes to build."""
    return changed(made, lambda about: about["networks"]["net"]["config"].update(sizes=[10**6, 10**6]))


def renamed(made: Path, name: str) -> bytes:
    return zipped({name if key == "images.safetensors" else key: value for key, value in members(made).items()})


def lying(made: Path) -> bytes:
    """A stored member that claims to be far longer than the file."""
    raw = bytearray(made.read_bytes())
    place = raw.index(b"PK\x01\x02")
    struct.pack_into("<II", raw, place + 20, 2**31, 2**31)
    return bytes(raw)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda made: b"", "is not a model file"),
        (lambda made: b"a letter to mother", "is not a model file"),
        (lambda made: made.read_bytes()[:-100], "damaged or cut short"),
        (lambda made: made.read_bytes()[:100], "damaged or cut short"),
        (lambda made: changed(made, lambda about: about.update(format=3, daydream="9.9")), "daydream 9.9 in format 3"),
        (lambda made: changed(made, lambda about: about.update(format="x")), "no format"),
        (lambda made: zipped(members(made), zipfile.ZIP_DEFLATED), "not stored as they are"),
        (lambda made: zipped({"model.json": bytes(10**8)}, zipfile.ZIP_DEFLATED), "not stored as they are"),
        (lying, "not stored as they are"),
        (lambda made: renamed(made, "../../outside.safetensors"), "members are not a model's"),
        (lambda made: renamed(made, "/tmp/outside.safetensors"), "members are not a model's"),
        (lambda made: zipped({**members(made), "more.pkl": b"cos\nsystem\n."}), "members are not a model's"),
        (lambda made: zipped({k: v for k, v in members(made).items() if "tens" not in k}), "members are not a model's"),
        (lambda made: changed(made, lambda about: about["settings"].update(method="evil.py:Mine")), "its method is"),
        (lambda made: changed(made, lambda about: about["settings"].update(memory=None)), "do not say its backbone"),
        (lambda made: changed(made, lambda about: about["lessons"].pop()), "lessons do not fit"),
        (lambda made: changed(made, lambda about: about["carried"]["parts"].update(erase=2.0)), "--erase 2 must be"),
        (lambda made: changed(made, lambda about: about["carried"]["parts"].update(evil=1)), "evil"),
        (lambda made: changed(made, lambda about: about.update(temperature=float("nan"))), "temperature is no number"),
        (lambda made: changed(made, lambda about: about.update(temperature=[1])), "temperature is no number above 0"),
        (lambda made: changed(made, lambda about: about.update(temperature=0)), "temperature is no number above 0"),
        (widened, "does not fit its weights"),
        (lambda made: zipped({**members(made), "model.json": b"[" * 10**6}), "damaged"),
        (lambda made: zipped({**members(made), "images.safetensors": b"\xff" * 64}), "damaged"),
    ],
)
def test_damage_is_one_line(made: Path, tmp_path: Path, make: Callable[[Path], bytes], says: str) -> None:
    path = tmp_path / "inner" / "model.daydream"
    path.parent.mkdir()
    path.write_bytes(make(made))
    with pytest.raises(UserError, match=says) as error:
        model_file.read(path, CPU)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)
    assert [file.name for file in tmp_path.rglob("*")] == ["inner", "model.daydream"]


# --- fuzzing ---------------------------------------------------------------------------------------------------------


def flipped(raw: bytes, dice: random.Random) -> bytes:
    data = bytearray(raw)
    for _ in range(dice.choice((1, 1, 8, 64))):
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    return bytes(data)


def flipped_directory(raw: bytes, dice: random.Random) -> bytes:
    """Flip bits where they hurt a zip reader most: in its directory."""
    start = raw.index(b"PK\x01\x02")
    return raw[:start] + flipped(raw[start:], dice)


def truncated(raw: bytes, dice: random.Random) -> bytes:
    return raw[: dice.randrange(4, len(raw))]


def moved(raw: bytes, dice: random.Random) -> bytes:
    start, length = dice.randrange(len(raw)), dice.randrange(1, 1000)
    return raw[:start] + dice.randbytes(length) + raw[start + dice.choice((0, length)) :]


def bomb(raw: bytes, dice: random.Random) -> bytes:
    name = dice.choice(model_file.MEMBERS)
    return zipped({**members_of(raw), name: bytes(dice.randrange(10**6, 10**7))}, zipfile.ZIP_DEFLATED)


def traversing(raw: bytes, dice: random.Random) -> bytes:
    name = dice.choice(("../escape", "/tmp/escape", "..\\escape", "a/../../escape", "C:\\escape", "model.json/../../x"))
    content = members_of(raw)
    return zipped({**content, name: content["model.json"]})


def other_value(value: Any, dice: random.Random) -> Any:
    return dice.choice(
        (None, -1, 0, 10**12, 1e308, "x" * 50, [], {}, [value], {"a": value}, "../../x", True, not value)
    )


def other_json(raw: bytes, dice: random.Random) -> bytes:
    """Change one value somewhere in model.json, the checksums being right."""
    content = members_of(raw)
    about = json.loads(content["model.json"])
    place: Any = about
    while True:
        key = dice.choice(list(place)) if isinstance(place, dict) else dice.randrange(len(place))
        if isinstance(place[key], dict | list) and place[key] and dice.random() < 0.8:
            place = place[key]
            continue
        place[key] = other_value(place[key], dice)
        return zipped({**content, "model.json": json.dumps(about).encode()})


def other_tensors(raw: bytes, dice: random.Random) -> bytes:
    """Change the shape, the type or the name of a tensor, the checksums being right; or flip bits in a header."""
    content = members_of(raw)
    member = dice.choice(model_file.MEMBERS[1:])
    if dice.random() < 0.3:
        return zipped({**content, member: flipped(content[member][:2000], dice) + content[member][2000:]})
    tensors = load(content[member])
    name = dice.choice(list(tensors))
    tensor = tensors.pop(name)
    kinds = (
        tensor[:-1] if tensor.ndim else tensor,
        tensor.float(),
        tensor.flatten(),
        tensor.double() + 10**9,
        tensor[None],
    )
    tensors[dice.choice((name, name, name + "x", "../" + name))] = dice.choice(kinds)
    return zipped({**content, member: save({key: value.contiguous() for key, value in tensors.items()})})


def members_of(raw: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        return {entry.filename: archive.read(entry) for entry in archive.infolist()}


KINDS = (flipped, flipped_directory, truncated, moved, bomb, traversing, other_json, other_json, other_tensors)
FORBIDDEN = ("os.system", "os.exec", "subprocess.Popen", "pickle.find_class", "os.rename", "os.mkdir", "socket.connect")


@pytest.fixture
def watched() -> Iterator[list[str]]:
    """Collect whatever a reader must not do: run code, or open a file for writing."""
    events: list[str] = []
    watching = [True]

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if not watching:
            return
        writes = event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")
        if event in FORBIDDEN or writes:
            events.append(f"{event} {arguments}")

    sys.addaudithook(hook)
    yield events
    watching.clear()


def complaint(path: Path) -> str | None:
    """Do with a model all that needs no folder; return what is said against it."""
    try:
        learner = Learner.load(path, device="cpu")
    except UserError as error:
        return str(error)
    assert len(learner.classes) >= 2
    assert learner.judged(drawn().test.of_classes(torch.tensor([0]))).shape[1] == len(learner.classes)
    return None


def test_two_hundred_fuzzed_files(made: Path, tmp_path: Path, watched: list[str]) -> None:
    raw, path = made.read_bytes(), tmp_path / "inner" / "model.daydream"
    path.parent.mkdir()
    assert complaint(made) is None
    complaints = []
    for seed in range(200):
        path.write_bytes(KINDS[seed % len(KINDS)](raw, random.Random(seed)))
        watched.clear()
        complaints.append(complaint(path))
        assert watched == [], seed
    said = [text for text in complaints if text is not None]
    assert all(str(path) in text and "\n" not in text for text in said)
    assert len(said) > 150, "most of these files are damaged"
    assert [file.name for file in tmp_path.rglob("*")] == ["inner", "model.daydream"]


# --- a network that grows --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    learner = tiny_learner(method="der")
    for lesson in range(3):
        labels = range(2 * lesson, 2 * lesson + 2)
        learner.learn(write_classes(folder / str(lesson), labels, 6), **TINY_LESSON)
    learner.save(folder / "model.daydream")
    return folder / "model.daydream"


def test_it_grows_by_a_lesson_and_comes_back(grown: Path, tmp_path: Path) -> None:
    learner = Learner.load(grown, device="cpu")
    assert set(learner.taught.state.nets) == {"net", "past.0", "past.1"}
    assert not learner.taught.state.tensors
    again = tmp_path / "again.daydream"
    learner.save(again)
    assert again.read_bytes() == grown.read_bytes()
    assert learner.judged(drawn().test).shape[1] == 6
    learner.export_onnx(tmp_path / "net.onnx")


def test_classes_given_again_train_the_newest_alone(grown: Path, tmp_path: Path) -> None:
    learner = Learner.load(grown, device="cpu")
    before = {k: v.clone() for k, v in learner.taught.state.nets["past.0"].state_dict().items()}
    newest = learner.taught.state.nets["net"].state_dict()["lower.stem.0.weight"].clone()
    learner.learn(write_classes(tmp_path / "again", range(2), 6, first=20), **TINY_LESSON)
    nets = learner.taught.state.nets
    assert set(nets) == {"net", "past.0", "past.1"}
    assert all(torch.equal(v, before[k]) for k, v in nets["past.0"].state_dict().items())
    assert not torch.equal(nets["net"].state_dict()["lower.stem.0.weight"], newest)


def without_a_past_one(about: dict[str, Any]) -> None:
    del about["networks"]["past.1"]


def misnamed(about: dict[str, Any]) -> None:
    about["networks"]["past.7"] = about["networks"].pop("past.1")


def of_another_kind(about: dict[str, Any]) -> None:
    about["networks"]["past.0"]["kind"] = "Joined"


def wider(about: dict[str, Any]) -> None:
    about["networks"]["net"]["config"]["inputs"] = 10**9


@pytest.mark.parametrize("change", [without_a_past_one, misnamed, of_another_kind, wider])
def test_networks_that_do_not_fit_are_one_line(grown: Path, tmp_path: Path, change: Any) -> None:
    path = tmp_path / "model.daydream"
    path.write_bytes(changed(grown, change))
    with pytest.raises(UserError, match="damaged") as error:
        model_file.read(path, CPU)
    assert "\n" not in str(error.value)


def test_fuzzed_files_of_a_network_that_grew(grown: Path, tmp_path: Path, watched: list[str]) -> None:
    raw, path = grown.read_bytes(), tmp_path / "model.daydream"
    assert complaint(grown) is None
    complaints = []
    for seed in range(60):
        path.write_bytes(KINDS[seed % len(KINDS)](raw, random.Random(1000 + seed)))
        watched.clear()
        complaints.append(complaint(path))
        assert watched == [], seed
    said = [text for text in complaints if text is not None]
    assert all(str(path) in text and "\n" not in text for text in said)
    assert len(said) > 40
