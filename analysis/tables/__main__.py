"""Tables from records: `python -m analysis.tables` writes all tables, and prints the main table of each study."""

from typing import Annotated

import typer

from vitinit.analysis import command, frame
from vitinit.analysis.published import FOLDER
from vitinit.analysis.rows import mixed_code
from vitinit.analysis.tables import notes
from vitinit.analysis.tables.contrasts import of_contrasts
from vitinit.analysis.tables.registry import build, names
from vitinit.analysis.tables.render import FORMATS, to_terminal
from vitinit.initializers.errors import BrokenFile, count, unknown_name


def run(
    results: command.ResultsOption = None,
    study_name: command.StudyOption = None,
    baseline: command.BaselineOption = None,
    out: command.OutOption = None,
    table_name: Annotated[
        str | None,
        typer.Option("--table", metavar="NAME", help="Write and print this table alone, such as small_masked."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Print every table, with its gains and all its notes.")
    ] = False,
    gain: Annotated[bool, typer.Option("--gain", help="Add paired differences with their 95 % intervals.")] = False,
    file_formats: Annotated[
        str, typer.Option("--format", metavar="NAME", help=f"With commas: {', '.join(FORMATS)}.")
    ] = "latex",
    metric: command.MetricOption = "last",
) -> None:
    """Write tables of records, and print the main one of each study with a summary: gains over each method's base."""
    formats = file_formats.split(",")
    for name in formats:
        if name not in FORMATS:
            raise unknown_name("format", name, FORMATS)
    metric = frame.metric_name(metric)
    every = [study.by(metric) for study in frame.load_all(results, study_name, baseline)]
    place = "tables" if metric == "last" else f"tables-{metric}"
    available = {name: study for study in every for name in names(study)}
    if table_name and table_name not in available:
        raise unknown_name("table", table_name, available)
    if not available:
        every[0].require_runs()

    from vitinit.benchmark.terminal import Terminal

    console = Terminal()
    studies = [available[table_name]] if table_name else every
    broken = []
    for study in studies:
        console.print(*study.note("read"))
        folder = study.out(out, place, len(studies) == 1)
        tables = []
        for name in [table_name] if table_name else names(study):
            try:
                tables.append(build(study, name, gain or everything or None))
            except BrokenFile as error:
                broken.append(error)
        named = next((table for table in tables if of_contrasts(table)), None)
        brief = not (everything or table_name)
        for table in tables:
            for file_format in formats:
                ending, write = FORMATS[file_format]
                command.write(folder / f"{table.name}.{ending}", write(table, everything))
            if not brief or table.name == study.name or table is named:
                for line in (table.caption, *to_terminal(table, console.width), *(table.notes if everything else ())):
                    console.print(line)
        if brief:
            summary = notes.sentences(tables[0], None if baseline else named) if tables else []
            for line in study.note("without_numbers") + mixed_code(study) + summary:
                console.print(line)
        console.print(f"{count(len(tables), 'table')} as {', '.join(formats)} in {folder}\n")
    if not FOLDER.is_dir():
        console.print(f"No published numbers are shown: {FOLDER} is missing; a clone of the repository has it")
    command.refuse(broken)


main = command.main_of(run, __name__)
