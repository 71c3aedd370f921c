"""Tables of committed studies in an article of two columns, set by pdflatex."""

import re
import subprocess

import pytest

from tests.processes import ROOT
from vitinit.analysis.tables.__main__ import main

ARTICLE = r"""\documentclass[twocolumn]{article}
\usepackage{booktabs,longtable}
\begin{document}
%s
\end{document}
"""


@pytest.mark.latex
def test_the_tables_of_every_committed_study_are_set_and_fit(tmp_path):
    assert main(["--results", str(ROOT / "results/reference"), *f"--out {tmp_path} --gain".split()]) == 0
    tables = sorted(tmp_path.rglob("*.tex"))
    assert len(tables) > 30
    one_column = [path for path in tables if "longtable" in path.read_text()]  # longtable cannot be in two columns
    body = "\n".join(rf"\input{{{path}}}\clearpage" for path in tables if path not in one_column)
    last = "\n".join(rf"\input{{{path}}}" for path in one_column)
    (tmp_path / "article.tex").write_text(ARTICLE % f"{body}\n\\onecolumn\n{last}")
    command = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "article.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]
    assert not re.search("Overfull|Float too large", done.stdout)
