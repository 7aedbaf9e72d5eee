"""Who is let in: this server's own page, and whoever knows the token; and what every answer says of itself."""

from pathlib import Path
from typing import Any

import pytest
from serving import client_of

from daydream.serve.guard import Gate


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "localhost:8765"}, 200),
        ({"host": "[::1]:8765"}, 200),
        ({"origin": "http://127.0.0.1:8765", "sec-fetch-site": "same-origin"}, 200),
        ({"host": "evil.example"}, 403),
        ({"host": "127.0.0.1.evil.example:8765"}, 403),
        ({"host": "127.0.0.1@evil.example"}, 403),
        ({"host": ""}, 400),
        ({"host": "[::1"}, 400),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://["}, 403),
        ({"origin": "http://127.0.0.1:9999"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, 403),
    ],
)
def test_other_sites_are_refused(client: Any, headers: dict[str, str], status: int) -> None:
    answer = client.get("/api", headers=headers)
    assert answer.status_code == status
    assert (status == 200) or set(answer.json()) == {"error"}


def test_a_link_from_elsewhere_opens_the_page_and_nothing_else(client: Any) -> None:
    visit = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert client.get("/", headers=visit).status_code == 200
    assert client.post("/api/models", headers=visit, json={"name": "x"}).status_code == 403


def test_answers_let_nothing_in_from_elsewhere(client: Any) -> None:
    for path in ("/", "/main.js", "/api", "/nothing"):
        headers = client.get(path).headers
        assert "default-src 'self'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers


def test_a_token_is_asked_for(tmp_path: Path) -> None:
    with client_of(tmp_path, Gate(hosts=None, token="secret")) as client:
        assert client.get("/api").status_code == 401
        assert client.get("/").status_code == 401
        assert client.get("/api", headers={"authorization": "Bearer wrong"}).status_code == 401
        assert client.get("/api", headers={"authorization": "Bearer secret"}).status_code == 200
        assert client.get("/?token=wrong").status_code == 401
        visit = client.get("/?token=secret", follow_redirects=False)
        assert visit.status_code == 303
        assert {"HttpOnly", "SameSite=strict"} <= set(visit.headers["set-cookie"].split("; "))
        assert client.get("/api").status_code == 200
        assert client.get("/api", headers={"origin": "http://evil.example"}).status_code == 403


def test_a_large_request_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with client_of(tmp_path, Gate(most=10_000)) as client:
        assert client.post("/api/models", content=b"x" * 20_000).status_code == 413

        def parts() -> Any:  # without a length: counted as it comes
            for _ in range(20):
                yield b"x" * 1000

        answer = client.post("/api/models", content=parts(), headers={"content-type": "application/json"})
        assert answer.status_code == 413
        assert client.get("/api", headers={"content-length": "-5"}).status_code == 400
