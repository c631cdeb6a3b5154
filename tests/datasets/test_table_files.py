"""Sizes of tables that are told before they are read."""

import numpy as np
import pandas as pd
import pytest

from wri.datasets.table_files import COPIES, NUMBER, reading_bytes


@pytest.fixture
def frame():
    return pd.DataFrame(np.random.default_rng(0).normal(size=(3000, 40)))


def test_rows_and_columns_of_a_csv_file_are_counted_from_its_first_lines(frame, tmp_path):
    frame.to_csv(tmp_path / "t.csv", index=False)
    expected = COPIES * NUMBER * 3000 * 40
    assert (tmp_path / "t.csv").stat().st_size > 1 << 20
    assert reading_bytes(tmp_path / "t.csv") == pytest.approx(expected, rel=0.02)
    frame[:2].to_csv(tmp_path / "u.csv", index=False)
    assert reading_bytes(tmp_path / "u.csv") == pytest.approx(expected / 1500, rel=0.02)


def test_parquet_files_say_what_they_hold(frame, tmp_path):
    pytest.importorskip("pyarrow")
    frame.columns = frame.columns.astype(str)
    frame.to_parquet(tmp_path / "t.parquet")
    assert reading_bytes(tmp_path / "t.parquet") == COPIES * NUMBER * 3000 * 40


def test_what_cannot_be_told_is_left_to_the_reader(tmp_path):
    (tmp_path / "t.parquet").write_bytes(b"no parquet")
    (tmp_path / "t.csv").write_bytes(b"")
    for name in ("t.parquet", "t.csv", "t.npz", "missing.csv"):
        assert reading_bytes(tmp_path / name) == 0
