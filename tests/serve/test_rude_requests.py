"""Hostile requests at random: no traceback, nothing written elsewhere, and the server goes on.

`make fuzz` sends thousands; a failure names its number, to be tried again with FUZZ=1 and FUZZ_FROM=NUMBER.
"""

import json
import logging
import os
import random
from pathlib import Path

import pytest
import rude
from serving import TINY, Asking, client_of

pytestmark = pytest.mark.slow

CASES, FIRST = int(os.environ.get("FUZZ", "300")), int(os.environ.get("FUZZ_FROM", "0"))


def outside(top: Path, inside: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(top.rglob("*")) if p.is_file() and not p.is_relative_to(inside)}


def test_rude_requests(tmp_path: Path, photos: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = tmp_path / "models"
    place.mkdir()
    (tmp_path / "letter").write_text("dear")
    before, found, refused = outside(tmp_path, place), [], 0
    with client_of(place, raising=False) as client, caplog.at_level(logging.ERROR):
        client.post("/api/models", json={"name": "m", **TINY}).raise_for_status()
        model = Asking(client, "m", place)
        model.upload(photos / "first")
        model.teach()
        spec = client.get("/openapi.json").json()
        for number in range(FIRST, FIRST + CASES):
            asked = rude.request(spec, random.Random(number))
            caplog.clear()
            try:
                answer = client.request(**asked)
            except (ValueError, TypeError):  # the client itself will not send it
                continue
            refused += answer.status_code >= 400
            one_line = answer.status_code < 400 or answer.request.method in ("HEAD", "OPTIONS") or is_line(answer.text)
            if answer.status_code >= 500 or not one_line or caplog.records or "Traceback" in answer.text:
                told = f"{asked['method']} {asked['url']} {answer.status_code} {answer.text[:300]}"
                found.append(f"{number}: {told} {[record.getMessage() for record in caplog.records]}")
            if number % 50 == 0 or "lessons" in asked["url"]:
                model.settled()
        assert not found, "\n".join(found[:20]) + f"\n{len(found)} of {CASES}"
        assert refused > CASES / 4
        assert client.get("/api").status_code == 200
    assert outside(tmp_path, place) == before
    for path in place.rglob("*"):
        assert path.resolve().is_relative_to(place.resolve())


def is_line(text: str) -> bool:
    found = json.loads(text)
    return set(found) == {"error"} and "\n" not in found["error"] and "\x1b" not in found["error"]
