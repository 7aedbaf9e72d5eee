"""Hostile requests, made of the server's own OpenAPI and a die: wrong types, odd names, archives, other sites."""

import io
import json
import random
import zipfile
from typing import Any

from PIL import Image

TEXTS = (
    "", " ", ".", "..", "../../etc/passwd",
    "/etc/passwd", "C:\\x", "a/b", "%2e%2e%2f", "\x00", "\x1b[2J", "\u202e", "\ud800",
    "<img src=x onerror=alert(1)>", "'; DROP TABLE x; --", "{{7*7}}", "${jndi:ldap://x}", "nan", "x" * 5000, "💥" * 60,
    "ring", "triangle", "m", "con", "-1", "1e309", "0x10", "true", "null", "file:///etc/passwd", "http://127.0.0.1:1/",
)  # fmt: skip
USUAL = ("ring", "triangle", "cat", "exact", "model")
NUMBERS = (0, -1, 1, 2**31, 2**63, 2**70, -(2**70), 1e308, 0.5, True)
HEADERS: tuple[dict[str, str], ...] = (
    {"host": "evil.example"},
    {"origin": "http://evil.example"},
    {"origin": "null"},
    {"origin": "http://["},
    {"host": "["},
    {"sec-fetch-site": "cross-site"},
    {"content-type": "text/plain"},
    {"content-type": "application/json; charset=utf-16"},
    {"content-type": "multipart/form-data"},
    {"content-type": "multipart/form-data; boundary="},
    {"content-length": "nan"},
    {"authorization": "Bearer \xff"},
    {"cookie": "daydream=" + "x" * 4000},
    {"range": "bytes=0-999999999"},
)


def value(dice: random.Random, depth: int = 0) -> Any:
    """Return JSON of any kind."""
    kind = dice.randrange(8 if depth < 4 else 4)
    if kind < 2:
        return dice.choice(TEXTS)
    if kind == 2:
        return dice.choice(NUMBERS)
    if kind == 3:
        return dice.choice((None, True, [], {}))
    if kind < 6:
        return [value(dice, depth + 1) for _ in range(dice.randrange(4))]
    return {dice.choice((*TEXTS[:12], "name", "to", "ids")): value(dice, depth + 1) for _ in range(dice.randrange(4))}


def body(spec: dict[str, Any], schema: dict[str, Any], dice: random.Random) -> Any:
    """Return what nearly fits a schema."""
    if "$ref" in schema:
        schema = spec["components"]["schemas"][schema["$ref"].split("/")[-1]]
    if dice.random() < 0.1:
        return value(dice)
    if "properties" in schema:
        found = {name: body(spec, inner, dice) for name, inner in schema["properties"].items() if dice.random() < 0.9}
        return {**found, dice.choice(TEXTS): value(dice)} if dice.random() < 0.1 else found
    if "anyOf" in schema:
        return body(spec, dice.choice(schema["anyOf"]), dice)
    if schema.get("type") == "array":
        return [body(spec, schema["items"], dice) for _ in range(dice.choice((0, 1, 2, 3, 50)))]
    if schema.get("type") == "integer":
        return dice.choice(NUMBERS)
    if schema.get("pattern"):
        return f"{dice.getrandbits(64):016x}"
    return dice.choice(TEXTS) if dice.random() < 0.5 else dice.choice(USUAL)


def picture(dice: random.Random) -> bytes:
    """Return a picture, whole or not."""
    out = io.BytesIO()
    kind, mode = dice.choice(
        (("PNG", "RGB"), ("PNG", "I;16"), ("GIF", "P"), ("JPEG", "CMYK"), ("WEBP", "RGB"), ("BMP", "1"))
    )
    Image.new(mode, (dice.randrange(1, 40), dice.randrange(1, 40))).save(out, kind)
    raw = bytearray(out.getvalue())
    for _ in range(dice.choice((0, 0, 1, 5, 40))):
        raw[dice.randrange(len(raw))] = dice.randrange(256)
    return bytes(raw[: dice.randrange(1, len(raw))]) if dice.random() < 0.2 else bytes(raw)


def archive(dice: random.Random) -> bytes:
    """Return a zip with odd names, of pictures or zeros, whole or not."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
        for i in range(dice.randrange(5)):
            name = dice.choice(
                ("cat/{}.png", "../{}.png", "/tmp/{}.png", "a/b/c/{}.jpg", "{}.png", "cat\\..\\{}.png", ".x/{}.png")
            )
            made.writestr(name.format(i), dice.choice((picture(dice), bytes(10**6), b"")))
    raw = bytearray(out.getvalue())
    for _ in range(dice.choice((0, 0, 2, 20))):
        raw[dice.randrange(len(raw))] = dice.randrange(256)
    return bytes(raw)


def files(dice: random.Random) -> list[tuple[str, tuple[str, bytes]]]:
    """Return the files of a form."""
    found = []
    for i in range(dice.choice((0, 1, 1, 2, 5))):
        if dice.random() < 0.15:
            found.append((f"{dice.choice(('a', '../x', 'cat/x'))}.zip", archive(dice)))
        else:
            where = dice.choice(("cat", "ring", "..", "<b>", "a" * 120, "\x07", "."))
            found.append((f"{where}/{i}.png", picture(dice)))
    return [(dice.choice((*["files"] * 12, "file", "")), one) for one in found]


def request(spec: dict[str, Any], dice: random.Random) -> dict[str, Any]:
    """Return one request for a client: method, address and what goes with it."""
    path = dice.choice(sorted(spec["paths"]))
    method = dice.choice(sorted(spec["paths"][path]))
    about = spec["paths"][path][method]
    if dice.random() < 0.05:
        method = dice.choice(("put", "patch", "options", "trace", "head", "delete"))
    query: dict[str, Any] = {}
    for one in about.get("parameters", []):
        if one["in"] == "path":
            known = {"model": "m", "picture": f"{dice.getrandbits(64):016x}"}[one["name"]]
            given = known if dice.random() < 0.85 else dice.choice(TEXTS)
            path = path.replace(f"{{{one['name']}}}", quoted(given))
        elif dice.random() < 0.12:
            query[one["name"]] = text(body(spec, one["schema"], dice))
    asked: dict[str, Any] = {
        "method": method.upper(),
        "url": path,
        "params": query,
        "headers": dict(dice.choice(HEADERS)) if dice.random() < 0.25 else {},
    }
    content = next(iter(about.get("requestBody", {}).get("content", {}).items()), None)
    if content is None:
        return asked
    if content[0].startswith("multipart") and dice.random() < 0.85:
        return {**asked, "files": files(dice)}
    raw = json.dumps(body(spec, content[1].get("schema", {}), dice))
    if dice.random() < 0.1:
        raw = dice.choice(("{", "[" * 100_000, "", "nul", raw[:-1]))
    return {**asked, "content": raw.encode(), "headers": {"content-type": "application/json", **asked["headers"]}}


def quoted(given: str) -> str:
    import urllib.parse

    return urllib.parse.quote(given.encode(errors="replace"), safe="")


def text(given: Any) -> str:
    return str(given).encode(errors="replace").decode()
