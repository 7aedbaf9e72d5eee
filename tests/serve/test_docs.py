"""The examples of docs/serve.md, run as they stand against a server with a tiny network."""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from documents import blocks
from own_images import write_classes
from serving import TINY, listening, zipped

pytestmark = pytest.mark.slow

PAGE, WRITTEN = "docs/serve.md", "http://127.0.0.1:8765"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not here")
def test_the_examples(tmp_path: Path, photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files = sorted((photos / "first").rglob("*.png"))
    Path("spring.zip").write_bytes(
        zipped({f"spring/{path.parent.name}/{path.name}": path.read_bytes() for path in files})
    )
    shutil.copy(files[0], "photo.png")
    write_classes(Path("summer"), range(2, 3), 4)
    Path("models").mkdir()
    tiny = ", ".join(f'"{key}": {value!r}'.replace("'", '"') for key, value in TINY.items())
    with listening(Path("models")) as address:
        [shell] = blocks(PAGE, "sh")
        for line in shell.replace(WRITTEN, address).replace('"garden"}', f'"garden", {tiny}}}').splitlines():
            done = subprocess.run([*shlex.split(line), "--fail-with-body"], capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        assert Path("garden.onnx").stat().st_size > 1000
        [program] = blocks(PAGE, "python")
        words = [sys.executable, "-c", program.replace(WRITTEN, address)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("\n") == 3
        assert "done" in done.stdout
