"""The feature picture of a run: some classes' real images, exemplars and counterparts on one map each."""

from collections.abc import Sequence

from daydream.errors import UserError
from daydream.methods import METHODS, load_method
from daydream.report.charts import Figure
from daydream.report.gather import Run
from daydream.report.run_charts import KINDS_OF_FEATURES, features

CLASSES = 2  # drawn of a run: t-SNE takes seconds per class
RUNS = 3  # drawn of a report: each loads its data and its network
NONE = "this run has no generators, so there are no counterparts to draw."
OWN = "not drawn: the run's method lies in a file, and a report imports no file that a run names."
LATER = "drawn by `daydream report`, which loads the run's images and network; not when a run ends."


def has_generators(run: Run) -> bool:
    """Say whether a run imagines with generators."""
    method, imagination = run.settings["method"], run.components.get("imagination", {})
    own = load_method(method).imagines if method in METHODS else ""  # a method in a user's file is not run for this
    made = own or ("generators" if imagination.get("imagine") else "")
    generates = imagination.get("counterparts_from", "generators") == "generators"
    return made == "generators" and generates and bool(imagination.get("counterparts"))


def undrawn(run: Run) -> str:
    """Say why the page that a run writes when it ends has no feature picture."""
    if not has_generators(run):
        return NONE
    return LATER if run.settings["method"] in METHODS else OWN


def feature_charts(runs: Sequence[Run]) -> dict[str, list[Figure] | str]:
    """Return, by a run's path, its charts or the reason why it has none; the first runs with generators are drawn."""
    found: dict[str, list[Figure] | str] = {}
    drawn = 0
    for run in runs:
        if not has_generators(run):
            found[str(run.path)] = NONE
        elif run.settings["method"] not in METHODS:
            found[str(run.path)] = OWN
        elif drawn == RUNS:
            found[str(run.path)] = f"drawn for the first {RUNS} runs with generators: daydream look {run.path}"
        else:
            found[str(run.path)] = charts_or_reason(run)
            drawn += 1
    return found


def charts_or_reason(run: Run) -> list[Figure] | str:
    """Load a run's data and last checkpoint and draw its first classes; say why where that cannot be done."""
    from threadpoolctl import threadpool_limits

    from daydream.experiment.config import config_from_json
    from daydream.experiment.experiment import Experiment
    from daydream.nets.generators import GeneratorBank
    from daydream.report import look
    from daydream.storage.run_folder import RunFolder

    try:
        experiment = Experiment(config_from_json(run.config))
        state, _ = look.last_state(experiment, RunFolder(run.path))
        bank = state.nets["generators"]
        assert isinstance(bank, GeneratorBank)
        labels = look.choose(experiment.stream, bank.classes, [], None)[:CLASSES]
        gathered = look.gather(experiment, state, labels)
    except UserError as error:
        return f"not drawn: {error}"
    with threadpool_limits(1):  # so few points take thirty times as long with threads that wait for busy cores
        maps = {name: [part.tolist() for part in look.embed(parts)] for name, parts in gathered.items()}
    return [features(name, dict(zip(KINDS_OF_FEATURES, parts, strict=True))) for name, parts in maps.items()]
