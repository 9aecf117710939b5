"""The conclusions: a sentence and a row per comparison."""

from riesz_lab.report.comparison_view import comparison_table
from riesz_lab.report.content import Finding, Section
from riesz_lab.report.evidence import ReportData
from riesz_lab.report.figures import FIGURES
from riesz_lab.report.labels import scale
from riesz_lab.sweeps import SWEEPS, SweepResult
from riesz_lab.utils.amounts import count

MAX_ARMS = 8


def summary(evidence: ReportData) -> Section:
    """A sentence per comparison."""
    findings = []
    for table, label, comparison in evidence.comparisons:
        arm = table.rows[label].arm
        subject, about = f"{label} against {arm.baseline}", scale(arm.config)
        findings.append(Finding(comparison.verdict, subject, f"{comparison.sentence}.", table.sweep.name, about))
    overview = FIGURES["overview"].make(evidence)
    text = (
        "One sentence per comparison, of the score after the last epoch. Trials are paired by seed: the same"
        " initial weights, the same order of the data. p-values are corrected for the number of comparisons in their"
        " table (Holm). Learning rates are those of the recipe for all methods unless they were tuned, and a metric"
        " changes the length of the step, so a difference here may be one of step length: see the controls."
    )
    return Section(
        name="summary",
        title="Summary",
        text=(text,) if findings else (),
        findings=findings,
        blocks=[overview] if overview else [],
        missing=() if findings else ("No method and its baseline share a seed, so there is nothing to compare yet.",),
    )


def comparisons(evidence: ReportData) -> Section:
    """A table per sweep."""
    return Section(
        name="comparisons",
        title="Comparisons in full",
        text=(
            "Score: mean over trials of the last epoch; the best epoch is chosen by looking at the test set and is"
            " shown for comparison with papers that report it. Difference: mean over pairs, method less baseline.",
        ),
        blocks=[comparison_table(table) for table in evidence.tables],
        missing=_incomplete(evidence),
    )


def _incomplete(evidence: ReportData) -> list[str]:
    lines = []
    for table in evidence.tables:
        lacking = [(label, n) for label, row in table.rows.items() if (n := row.wanted - len(row.trials)) > 0]
        if lacking and (name := _command_name(evidence, table)):
            arms = ", ".join(f"{label} ({n})" for label, n in lacking[:MAX_ARMS])
            more = f" and {len(lacking) - MAX_ARMS} more" if len(lacking) > MAX_ARMS else ""
            lines.append(
                f"{table.sweep.name}: {count(sum(n for _, n in lacking), 'trial')} to be completed: {arms}{more}."
                f" Run: riesz sweep {name}"
            )
    return lines


def _command_name(evidence: ReportData, table: SweepResult) -> str:
    """What `riesz sweep` calls a sweep; empty for trials of none."""
    names = [name for name, sweep in evidence.sweeps.items() if sweep == table.sweep]
    return next(iter(names), table.sweep.name if table.sweep.name in SWEEPS else "")
