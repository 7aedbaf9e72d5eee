"""How fast `daydream serve` answers, beside the same network in plain onnxruntime behind a bare FastAPI route.

python benchmarks/serve.py                    GET, one picture and 32, idle and during a lesson, both servers in turns
python benchmarks/serve.py --pictures 5000    that many pictures sent, taught and undone: time and peak memory

Needs the extras serve and pretrained (without the latter, the same network with random weights).
"""

import argparse
import contextlib
import io
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from PIL import Image

from daydream.nets.pretrained import installed

NAME = "efficientnet-lite0"
BARE = """
import sys, json
from io import BytesIO
import numpy as np, onnxruntime, uvicorn, socket
from fastapi import FastAPI, UploadFile
from PIL import Image
from daydream.data.decode import square
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
about = session.get_modelmeta().custom_metadata_map
side, mean, std = int(about["image_size"]), json.loads(about["mean"]), json.loads(about["std"])
mean, std = (np.float32(part).reshape(3, 1, 1) for part in (mean, std))
names, temperature = json.loads(about["class_names"]), float(about["temperature"])
app = FastAPI()
@app.get("/about")
def told() -> dict:
    return about
@app.post("/predict")
def predict(files: list[UploadFile]):
    pixels = [square(Image.open(BytesIO(file.file.read())), side) for file in files]
    logits = session.run(None, {"images": np.stack([(p.astype(np.float32) / 255 - mean) / std for p in pixels])})[0]
    p = np.exp((logits - logits.max(1, keepdims=True)) / temperature)
    p /= p.sum(1, keepdims=True)
    return [dict(zip(names, map(float, row))) for row in p]
listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
listener.bind(("127.0.0.1", 0))
listener.listen()
print(f"bare: http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run(sockets=[listener])
"""


def photo(seed: int, side: int = 320) -> bytes:
    """Draw a picture with large and small structure, as a JPEG."""
    draws = np.random.default_rng(seed)
    coarse = Image.fromarray(draws.integers(0, 255, (6, 8, 3), np.uint8)).resize((side, side * 3 // 4), Image.BICUBIC)
    noise = draws.integers(0, 40, (side * 3 // 4, side, 3))
    out = io.BytesIO()
    Image.fromarray((np.asarray(coarse) * 0.8 + noise).astype(np.uint8)).save(out, "JPEG", quality=88)
    return out.getvalue()


@contextlib.contextmanager
def started(*words: str) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    process = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().split(": ", 1)[1].strip().rstrip("/"), process
    finally:
        process.kill()
        process.wait()


def load(url: str, files: list[Any] | None, seconds: float, clients: int) -> dict[str, float]:
    """Send the same request from several clients for some seconds; return requests a second, and times in ms.

    Without files it is a GET.
    """
    times: list[float] = []
    end = time.perf_counter() + seconds

    def go() -> None:
        with httpx.Client(timeout=120) as client:
            while (began := time.perf_counter()) < end:
                (client.post(url, files=files) if files else client.get(url)).raise_for_status()
                times.append(time.perf_counter() - began)

    threads = [threading.Thread(target=go) for _ in range(clients)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    passed = time.perf_counter() - began
    p50, p99 = np.percentile(times, [50, 99]) * 1000
    return {"per_second": len(times) / passed, "p50_ms": float(p50), "p99_ms": float(p99)}


def taught(client: httpx.Client, name: str, pictures: list[Any], wait: bool = True, **settings: Any) -> float:
    """Send pictures, teach them, and return the seconds of the lesson."""
    for start in range(0, len(pictures), 40):
        client.post(f"/api/models/{name}/pictures", files=pictures[start : start + 40]).raise_for_status()
    client.post(f"/api/models/{name}/lessons", json=settings).raise_for_status()
    while wait and (lesson := client.get(f"/api/models/{name}").json()["lesson"])["state"] == "running":
        time.sleep(0.2)
    assert not wait or lesson["state"] == "done", lesson
    return lesson["seconds"] if wait else 0.0


def labelled(count: int, classes: int, first: int = 0) -> list[Any]:
    return [("files", (f"class{i % classes}/{first + i}.jpg", photo(first + i))) for i in range(count)]


def prediction(seconds: float, rounds: int, clients: int) -> dict[str, Any]:
    """Measure both servers in turns."""
    found: dict[str, Any] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        started("-m", "daydream", "serve", folder, "--port=0", "--no-browser") as (ours, _),
    ):
        client = httpx.Client(base_url=ours, timeout=600)
        backbone = NAME if installed(NAME) else f"{NAME}+untrained"
        client.post("/api/models", json={"name": "m", "backbone": backbone}).raise_for_status()
        taught(client, "m", labelled(40, 4))
        graph = Path(folder) / "m.onnx"
        graph.write_bytes(client.get("/api/models/m/export").content)
        with started("-c", BARE, str(graph)) as (bare, _):
            asked = {"ours": f"{ours}/api/models/m/predict", "bare": f"{bare}/predict"}
            told = {"ours": f"{ours}/api/models/m", "bare": f"{bare}/about"}
            one, many = labelled(1, 1, 900), labelled(32, 1, 900)
            id_ = client.get("/api/models/m").json()["classes"][0]["pictures"][0]
            small = {"ours": f"{ours}/api/models/m/pictures/{id_}", "bare": f"{bare}/about"}
            loads: dict[str, tuple[dict[str, str], list[Any] | None]] = {
                "GET, the model": (told, None),
                "GET, a thumbnail": (small, None),
                "1 picture": (asked, one),
                "32 pictures": (asked, many),
            }
            for urls, files in loads.values():
                for url in urls.values():
                    load(url, files, min(1.0, seconds), clients)
            for state in ("idle", "during a lesson"):
                if state != "idle":
                    client.post(
                        "/api/models", json={"name": "slow", "method": "replay", "image_size": 32}
                    ).raise_for_status()
                    taught(client, "slow", labelled(200, 4, 2000), wait=False, epochs=10_000)
                    time.sleep(8)
                for what, (urls, files) in loads.items():
                    runs: dict[str, list[dict[str, float]]] = {name: [] for name in urls}
                    for _ in range(rounds):
                        for name, url in urls.items():
                            runs[name].append(load(url, files, seconds, clients))
                    mean = {
                        name: {key: float(np.median([run[key] for run in own])) for key in own[0]}
                        for name, own in runs.items()
                    }
                    mean["ratio"] = {"per_second": mean["ours"]["per_second"] / mean["bare"]["per_second"]}
                    found[f"{what}, {state}"] = mean
            client.delete("/api/models/slow/lessons/current")
    return found


def peak(pid: int) -> dict[str, float]:
    """Return the peak memory in GiB of a process and of its children."""
    found = {}
    for one in [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]:
        lines = Path(f"/proc/{one}/status").read_text().splitlines()
        found["server" if one == pid else "worker"] = (
            int(next(x for x in lines if x.startswith("VmHWM")).split()[1]) / 2**20
        )
    return found


def many(count: int) -> dict[str, Any]:
    """Send many pictures, teach them, undo it."""
    with (
        tempfile.TemporaryDirectory() as folder,
        started("-m", "daydream", "serve", folder, "--port=0", "--no-browser") as (ours, process),
    ):
        client = httpx.Client(base_url=ours, timeout=1200)
        backbone = NAME if installed(NAME) else f"{NAME}+untrained"
        client.post("/api/models", json={"name": "m", "backbone": backbone}).raise_for_status()
        taught(client, "m", labelled(20, 2, 10**6))
        pictures, began = labelled(count, 10), time.perf_counter()
        for start in range(0, count, 40):
            client.post("/api/models/m/pictures", files=pictures[start : start + 40]).raise_for_status()
        found: dict[str, Any] = {"pictures": count, "sent_seconds": time.perf_counter() - began}
        found["estimated_seconds"] = client.get("/api/models/m/lessons/estimate").json()["seconds"]
        client.post("/api/models/m/lessons", json={}).raise_for_status()
        slowest = 0.0
        while True:
            began = time.perf_counter()
            lesson = client.get("/api/models/m").json()["lesson"]
            slowest = max(slowest, time.perf_counter() - began)
            if lesson["state"] != "running":
                break
            time.sleep(0.5)
        assert lesson["state"] == "done", lesson
        found |= {"taught_seconds": lesson["seconds"], "slowest_answer_meanwhile": slowest}
        began = time.perf_counter()
        client.post("/api/models/m/undo").raise_for_status()
        return found | {"undone_seconds": time.perf_counter() - began, "peak_gib": peak(process.pid)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=4)
    given = parser.parse_args()
    found = many(given.pictures) if given.pictures else prediction(given.seconds, given.rounds, given.clients)
    machine = {"cores": os.cpu_count(), "load": os.getloadavg(), "python": platform.python_version()}
    print(json.dumps({**found, "machine": machine}, indent=2))


if __name__ == "__main__":
    main()
