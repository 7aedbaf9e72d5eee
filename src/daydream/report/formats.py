"""The summary of runs as text for papers and spreadsheets: Markdown, LaTeX (booktabs), CSV."""

import csv
import io
from collections.abc import Callable, Sequence

from daydream import escapes
from daydream.errors import UserError
from daydream.escapes import tex
from daydream.report.gather import Run, Section, sections
from daydream.report.paired import HEADING, verdicts
from daydream.report.summary import MEASURES, Line, lines_of
from daydream.storage.run_folder import resume_command

ABOUT = (
    "Top-1 accuracy in per cent on all classes seen: CNN by the head, NME by the nearest mean of exemplars. Average is "
    "over tasks, base task included; forgetting is how far old tasks fell from their best. "
    "± is the standard deviation over n runs (seeds and class orders)."
)
HEADS = ("method", "protocol", "images", "n", *MEASURES.values(), "paper")


def as_text(runs: Sequence[Run], form: str) -> str:
    """Return the summary of runs in one of `FORMS`; runs without a result are named, not averaged."""
    if not any(run.finished for run in runs):
        raise UserError(f"no run is finished, so there is nothing to tabulate; go on: {resume_command(runs[0].path)}")
    return FORMS[form](sections(runs))


def paper_text(line: Line) -> str:
    """Return the paper's value, its mark, which accuracy it is and by which memory rule, where it says so."""
    cell = line.paper
    if cell is None or cell.accuracy is None:
        return ""
    kind = cell.reports.upper() if cell.reports else "kind not said"
    rule = ", memory rule not said" if cell.budget == "unstated" else ""
    return f"{cell.accuracy:.2f}{cell.mark} ({kind}{rule})"


def _cells(line: Line, between: str, missing: str) -> list[str]:
    values = [line.value(measure) for measure in MEASURES]
    numbers = [missing if value is None else value.text(between) for value in values]
    first = line.runs[0]
    return [
        first.variant,
        line.protocol,
        first.evaluated_on,
        str(len(line.runs)),
        *numbers,
        paper_text(line) or missing,
    ]


def unfinished(section: Section) -> list[str]:
    return [f"{run.name} ({run.status})" for run in section.runs if not run.finished]


def markdown(parts: Sequence[Section]) -> str:
    blocks = [ABOUT]
    for section in parts:
        rows = [_cells(line, " ± ", "–") for line in lines_of(section.runs)]
        table = [HEADS, ["---"] * len(HEADS), *(list(map(escapes.markdown, row)) for row in rows)]
        blocks += [f"## {escapes.markdown(section.title)}", "\n".join(f"| {' | '.join(row)} |" for row in table)]
        if said := verdicts(lines_of(section.runs)):
            blocks += [f"{HEADING}:", "\n".join(f"- {escapes.markdown(line)}" for line in said)]
        blocks += [f"Left out: {', '.join(map(escapes.markdown, names))}." for names in [unfinished(section)] if names]
    return "\n\n".join(blocks) + "\n"


def latex(parts: Sequence[Section]) -> str:
    """Return one table per data set; needs the package booktabs."""
    return "% needs \\usepackage{booktabs}\n" + "\n".join(_latex_table(section) for section in parts)


def _latex_table(section: Section) -> str:
    rows = [" & ".join(map(tex, _cells(line, " ± ", "--"))) + r" \\" for line in lines_of(section.runs)]
    lines = [
        *(f"% left out: {', '.join(map(tex, names))}" for names in [unfinished(section)] if names),
        r"\begin{table}[t]",
        r"\centering",
        rf"\caption{{{tex(f'{section.title}. {ABOUT}')}}}",
        rf"\begin{{tabular}}{{lllr{'r' * len(MEASURES)}r}}",
        r"\toprule",
        " & ".join(HEADS) + r" \\",
        r"\midrule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def comma_separated(parts: Sequence[Section]) -> str:
    """Return a line per group of runs, mean and standard deviation in columns of their own."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = [f"{measure}{tail}" for measure in MEASURES for tail in ("", "_deviation")]
    writer.writerow(["data", "method", "protocol", "images", "n", "runs", *columns, "paper", "paper_kind"])
    for section in parts:
        for line in lines_of(section.runs):
            values = [line.value(measure) for measure in MEASURES]
            numbers = [x for value in values for x in ((value.mean, value.deviation) if value else (None, None))]
            first, cell = line.runs[0], line.paper
            names = " ".join(run.name for run in line.runs)
            texts = [escapes.cell(text) for text in (section.title, first.variant, line.protocol)]
            writer.writerow(
                [*texts, first.evaluated_on, len(line.runs), escapes.cell(names)]
                + ["" if number is None else round(number, 4) for number in numbers]
                + ([cell.accuracy, cell.reports or ""] if cell else ["", ""])
            )
    return text.getvalue()


FORMS: dict[str, Callable[[Sequence[Section]], str]] = {"md": markdown, "latex": latex, "csv": comma_separated}
