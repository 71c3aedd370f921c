"""Text that comes from records, made safe to print: on one line, in Markdown or in LaTeX; and numbers as text."""

import re
import unicodedata
from collections.abc import Iterable

from vitinit.initializers.errors import plain

_LATEX = dict(
    line.split()
    for line in r"""
\ \textbackslash{}
~ \textasciitilde{}
^ \textasciicircum{}
# \#
$ \$
% \%
& \&
_ \_
{ \{
} \}
< \textless{}
> \textgreater{}
| \textbar{}
" ''
[ {[}
] {]}
* {*}
± $\pm$
− $-$
× $\times$
→ $\to$
… \ldots{}
† $^\dagger$
✓ $\surd$
✗ $\times$
≥ $\geq$
– \textendash{}
’ '
— \textemdash{}
ß \ss{}
ø \o{}
æ \ae{}
ł \l{}
≤ $\leq$
≈ $\approx$
· $\cdot$
² $^2$
∞ $\infty$
α $\alpha$
β $\beta$
γ $\gamma$
ε $\epsilon$
η $\eta$
λ $\lambda$
μ $\mu$
π $\pi$
ρ $\rho$
σ $\sigma$
τ $\tau$
Δ $\Delta$
""".strip().splitlines()
)
"""Letters that are printed otherwise. OT1, LaTeX's default font encoding, prints other glyphs for <, >, | and ";
after the double backslash that ends a table row, [ and * would be read as its arguments."""


def signed(value: float, digits: int = 2) -> str:
    """Write a number with its sign and a true minus; what rounds to zero has no sign."""
    text = f"{value:+.{digits}f}".replace("-", "−")
    return text if text.strip("+−0.") else text[1:]


def number(value: float, digits: int = 2) -> str:
    """Write a number with so many decimals and a true minus, without a plus."""
    return signed(value, digits).removeprefix("+")


def listed(labels: Iterable[str]) -> str:
    """Join labels by commas; those with a comma of their own are in quotes."""
    return ", ".join(f'"{label}"' if "," in label else label for label in labels)


def p_written(p: float) -> str:
    """Write p with three digits, `0.016`, or as `< 0.001`; a dash for NaN."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}".replace("nan", "–")


def p_equals(p: float) -> str:
    """Write p as `= 0.016` or `< 0.001`."""
    written = p_written(p)
    return written if written[0] == "<" else f"= {written}"


def escape_markdown(text: str) -> str:
    """Escape a text as one line of Markdown, for cells of pipe tables too."""
    return re.sub(r"([\\`*_{}>#|~$!]|<(?=[a-zA-Z/!?])|\](?=[(\[:]))", r"\\\1", plain(text))


def escape_latex(text: str) -> str:
    """Escape a text as LaTeX of the kernel alone; what that cannot print becomes [U+XXXX]."""
    # Neighbouring hyphens would become a dash.
    latex = re.sub("-(?=-)", "-{}", "".join(_latex_char(char) for char in plain(text)))
    return re.sub(r"\b[dLhkp] = \d+(?![.\d])", r"$\g<0>$", latex.replace(r"W\_q", "$W_q$"))


def _latex_char(char: str) -> str:
    if char in _LATEX:
        return _LATEX[char]
    accented = ord(char) < 0x100 and len(unicodedata.normalize("NFD", char)) == 2
    return char if char.isascii() or accented else f"{{[}}U+{ord(char):04X}{{]}}"
