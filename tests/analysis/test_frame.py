"""Reading records: which folder, which study, what is left out."""

from synthetic_records import done, failed, laid_out, skipped, write

from vitinit.analysis.frame import load


def test_study_choice(tmp_path):
    write(tmp_path, done("Mimetic", study="b"), done("Mimetic", study="small"))
    study = load([tmp_path])
    assert study.name == "small"
    assert study.note("read") == [f"Study small: 1 finished, in {tmp_path}/small"]
    assert load([tmp_path], "b").name == "b"


def test_union_of_folders_the_first_wins(tmp_path):
    first = write(tmp_path / "one", done("Mimetic", (1.0,)), failed("Imp.-3", epochs=1))
    second = write(
        tmp_path / "two",
        done("Mimetic", (2.0,)),
        done("Trunc normal", (3.0,)),
        done("Imp.-3", (4.0,)),
        skipped("Imp.-5"),
        skipped("Imp.-5", seed=1),
        failed("ConViT"),
    )
    study = load([first, second])
    assert dict(zip(study.runs["row"], study.runs["score"], strict=True)) == {
        "Mimetic": 1.0,
        "Trunc normal": 3.0,
        "Imp.-3": 4.0,
    }
    there = f"3 finished, 1 failed, 2 skipped, in {first}/small, {second}/small"
    assert study.note("read") == [f"Study small: {there}"], "a finished run hides its failure"


def test_order_of_rows_and_columns(tmp_path):
    for row in ("ConViT", "Trunc normal", "Imp.-3"):
        write(tmp_path, done(row))
    write(tmp_path, done("Mimetic", label="A new method"), done("Mimetic", dataset="digits"))
    write(tmp_path, done("Mimetic", train_size=5000), done("Mimetic", dataset="aircraft"))
    study = load([tmp_path])
    assert study.rows == ["Trunc normal", "Mimetic", "Imp.-3", "ConViT", "A new method"]
    assert study.columns == ["digits", "cifar10[5000]", "cifar10", "aircraft"]


def test_each_column_has_a_head_of_its_own(tmp_path):
    write(tmp_path, done("Mimetic"), done("Mimetic", train_size=5000))
    assert load([tmp_path]).heads == ("CIFAR-10", {"cifar10[5000]": "5,000 images", "cifar10": "CIFAR-10"})
    write(tmp_path, done("Mimetic", dataset="CIFAR-10"))  # somebody's own
    assert len({*load([tmp_path]).heads[1].values()}) == 3
    sizes = [done("Mimetic", dataset="Pets (v2), b", train_size=size, study="own") for size in (10, 20)]
    assert load([write(tmp_path, *sizes)], "own").heads[0] == "Pets (v2), b"
    assert [*load([tmp_path], "own").heads[1].values()] == ["10 images", "20 images"]


def test_rows_are_in_the_order_that_stands_beside_the_records(tmp_path):
    labels = ["ConViT", "Mimetic", "Imp.-3", "never run"]
    for row in ("Trunc normal", "Imp.-3", "ConViT", "Mimetic"):
        write(tmp_path / "one", done(row))
    laid_out(tmp_path / "one", rows=labels)
    assert load([tmp_path / "one"]).rows == ["ConViT", "Mimetic", "Imp.-3", "Trunc normal"]
    write(tmp_path / "two", done("Kaiming uniform"), done("Imp.-5"))
    laid_out(tmp_path / "two", rows=["Imp.-5", "Kaiming uniform", "ConViT"])
    both = ["ConViT", "Mimetic", "Imp.-3", "Imp.-5", "Kaiming uniform", "Trunc normal"]
    assert load([tmp_path / "one", tmp_path / "two"]).rows == both, "the first folder's order, then what others add"
    (tmp_path / "one" / "small" / "LAYOUT").write_text('{"Mimetic": 1}')
    study = load([tmp_path / "one"])
    assert study.rows == ["Trunc normal", "Mimetic", "Imp.-3", "ConViT"]
    (problem,) = study.contents.problems
    assert problem.startswith("small/LAYOUT: does not hold the rows and contrasts of a grid")


def test_settings_are_never_mixed_in_a_cell(tmp_path):
    write(tmp_path, done("Mimetic", (1.0, 2.0)), done("Mimetic", (1.0, 2.0, 3.0)), done("Trunc normal", (5.0, 6.0)))
    study = load([tmp_path])
    assert study.columns == ["cifar10 (epochs 2)", "cifar10 (epochs 3)"]
    assert list(study.runs[study.runs["row"] == "Trunc normal"]["column"]) == ["cifar10 (epochs 2)"]
