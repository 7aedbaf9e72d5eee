"""Tables for the terminal: how runs of one method are told apart."""

import subprocess
import sys
from typing import Any

from daydream.experiment.naming import variants


def config(method: str, **sections: Any) -> dict[str, Any]:
    return {"run": {"method": method, "seed": 1}, "method": {"epochs": 160}, **sections}


def test_a_name_has_the_settings_in_which_runs_of_its_method_differ() -> None:
    assert variants(
        [
            config("replay", parts={"blend": "1", "ema": 0.0}),
            config("replay", parts={"blend": "0.6", "ema": 0.0}),
            config("imagine", parts={"blend": "0.9", "ema": 0.5}),  # alone of its method
            config("replay", parts={"blend": "0.6", "ema": 0.0}),
        ]
    ) == ["replay --blend 1", "replay --blend 0.6", "imagine", "replay --blend 0.6"]


def test_seeds_and_what_only_some_runs_know_of_do_not_count() -> None:
    old, new = config("ucir", parts=None), config("ucir", parts={"erase": 0.0}, imagination={"imagine": False})
    new["run"]["seed"] = 2
    assert variants([old, new]) == ["ucir", "ucir"]


def test_flags_are_written_as_a_command_has_them() -> None:
    own = "/home/me/own.py:Own"
    runs = [
        config(own, imagination={"imagine": True, "generator_width": None, "some": [1, 2]}),
        config(own, imagination={"imagine": False, "generator_width": 16, "some": [3]}),
    ]
    assert variants(runs) == [
        "own.py:Own --imagine --some 1,2",
        "own.py:Own --no-imagine --generator-width 16 --some 3",
    ]


def test_runs_are_listed_without_torch() -> None:
    program = "import sys, daydream.cli.tables, daydream.storage.run_folder; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
