"""Datasets that are official archives, downloaded from a web server of the test's own."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from small_archives import put
from test_archived import made, opened, refusal

from vitinit.benchmark.datasets import downloaded
from vitinit.benchmark.spec import DatasetSpec
from vitinit.initializers.errors import VitinitError


@pytest.mark.parametrize("name", ["pets", "stl10"])
def test_what_is_downloaded_is_packed_and_not_kept(name: str, tmp_path: Path, server: str) -> None:
    dataset, folder = made(name, tmp_path, server, place="served"), tmp_path / "new/data"
    first = next(iter(dataset.archives))
    assert "vitinit data get" in str(dataset.unavailable(DatasetSpec(name=name), folder))
    told: list[tuple[int, int]] = []
    dataset.download(folder, lambda done, total: told.append((done, total)))
    assert told[-1] == (sum(dataset.images), sum(dataset.images))
    assert dataset.unavailable(DatasetSpec(name=name), folder) is None
    assert not (folder / first).exists()
    alone = tmp_path / "alone"
    put(alone, {file: (tmp_path / "served" / file).read_bytes() for file in dataset.archives})
    dataset.download(alone)
    assert (alone / first).is_file(), "it was put there by somebody else"
    assert opened(dataset, alone).checksum == opened(dataset, folder).checksum
    (tmp_path / "served" / first).unlink()
    dataset.download(folder)  # nothing is fetched again


def test_a_damaged_archive_that_is_there_is_found_before_anything_is_downloaded(tmp_path: Path, server: str) -> None:
    dataset, folder = made("pets", tmp_path, server, place="served"), tmp_path / "data"
    (folder / "oxford-iiit-pet").mkdir(parents=True)
    (folder / "oxford-iiit-pet/annotations.tar.gz").write_bytes(b"half")
    assert "annotations.tar.gz is damaged: md5" in refusal(dataset, folder)
    assert sorted(file.name for file in folder.rglob("*") if file.is_file()) == ["annotations.tar.gz"]


def test_what_was_downloaded_before_an_error_is_taken_and_removed_later(tmp_path: Path, server: str) -> None:
    dataset, folder = made("pets", tmp_path, server, place="served"), tmp_path / "data"
    last = list(dataset.archives)[-1]
    served = tmp_path / "served" / last
    kept = served.read_bytes()
    served.unlink()
    with pytest.raises(VitinitError, match="cannot download pets"):
        dataset.download(folder)
    first = next(iter(dataset.archives))
    (tmp_path / "served" / first).unlink()
    served.write_bytes(kept)
    dataset.download(folder)
    assert [path.name for path in folder.iterdir() if path.name != ".pets.lock"] == ["pets"]


def test_what_a_server_has_damaged_is_refused_and_not_kept(tmp_path: Path, server: str) -> None:
    dataset = made("pets", tmp_path, server, place="served")
    path = tmp_path / "served/oxford-iiit-pet/annotations.tar.gz"
    whole = path.read_bytes()
    for wrong, says in ((whole[:-1], f"{len(whole) - 1:,} of {len(whole):,} bytes"), (whole + b"!", "more than")):
        path.write_bytes(wrong)
        with pytest.raises(VitinitError, match=f"cannot download pets .*{says}") as info:
            dataset.download(tmp_path / "data")
        assert f"put oxford-iiit-pet/annotations.tar.gz into {tmp_path / 'data'}" in str(info.value)
        kept = [file for file in (tmp_path / "data").rglob("*") if file.is_file()]
        assert [file.name for file in kept] == ["images.tar.gz"], "what is whole is not fetched again"
    path.write_bytes(whole)
    dataset.download(tmp_path / "data")
    assert len(opened(dataset, tmp_path / "data").train.labels) == 4


@pytest.mark.parametrize("answers", [True, False])
def test_a_server_that_is_silent_or_not_there_is_one_line(answers: bool, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(downloaded, "TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        if not answers:
            silent.close()
        dataset = made("flowers", tmp_path, address, place="elsewhere")
        with pytest.raises(VitinitError) as info:
            dataset.download(tmp_path / "data")
    assert str(info.value).startswith("cannot download flowers (")
    assert "put flowers-102/ with 102flowers.tgz, imagelabels.mat, setid.mat into" in str(info.value)
    assert "\n" not in str(info.value)
