"""The board: order, placebos and ranked methods, from synthetic records."""

from synthetic_records import several

from vitinit.analysis.pages.__main__ import main
from vitinit.benchmark.records import looks
from vitinit.benchmark.records.looks import Comparison, Look, Looks
from vitinit.benchmark.records.store import Layout, Store

PLAIN = {"Kaiming uniform": [40.0, 41.0, 42.0]}


def comparison(gain):
    return Comparison(gain=gain, low=gain - 1, high=gain + 1, p=0.01, says="gain")


def test_a_list_has_one_setting_and_is_ranked_by_the_lower_end(tmp_path, capsys):
    tops = {"Mimetic": [45.0, 46.1, 46.9], "Imp.-3": [49.0, 41.0, 50.0], "Placebo of Mimetic": [43.0, 44.1, 44.9]}
    several(tmp_path, {**PLAIN, **tops}, study="standard")
    several(tmp_path, {"Trunc normal": [40.0, 40.5, 41.5]}, study="standard", label="DeiT")
    several(tmp_path, {"ConViT": [60.0, 61.0, 62.0]}, study="standard")
    several(tmp_path, {**PLAIN, "Mimetic": [45.0, 46.1, 46.9]}, study="rank-mine", label="Mine")
    contrasts = [("Mine", "Mine's base"), ("Mine", "Mine, placebo")]
    Store(tmp_path).write_layout("rank-mine", Layout(contrasts=contrasts))
    look = Look(n=8, base=comparison(3.2), placebo=comparison(0.5))
    looks.write(tmp_path / "rank-mine", Looks(tier="standard", worth=1, seeds=list(range(12)), taken=[look]))
    results = ["--results", str(tmp_path)]
    assert main(results) == 0
    lines = (tmp_path / "board.md").read_text().splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| ")]
    assert [row[:6] for row in cells] == [
        ["rank", "entry", "over", "gain [95 %]", "over its placebo", "n"],
        ["1", "Mimetic", "Kaiming uniform", "+5.00 [4.75, 5.25]", "+2.00 [2.00, 2.00]", "3"],
        ["2", "Mine", "Mine's base", "+3.20 [2.20, 4.20]", "+0.50 [−0.50, 1.50]", "8"],
        ["3", "Imp.-3", "Kaiming uniform", cells[3][3], "", "3"],
        cells[0][:6],
        ["1", "ConViT", "DeiT", "+20.33 [19.62, 21.05]", "", "3"],
    ], "a row of another architecture is no gain of an initialisation"
    assert main([*results, "--check"]) == 0
    (tmp_path / "board.md").write_text((tmp_path / "board.md").read_text().replace("+5.00", "+5.01"))
    assert main([*results, "--check"]) == 2
    assert "board.md" in capsys.readouterr().err
