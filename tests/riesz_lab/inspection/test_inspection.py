"""Inspection: files are read safely, and what is measured is what the docs define."""

import re

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from hostile_checkpoints import SENTINEL, cases, deep_key, legacy, saved
from riesz_lab import cli
from riesz_lab.errors import BadFileError
from riesz_lab.inspection import inspect, inspect_tensors, read_tensors, regularity
from riesz_lab.inspection.regularity import correlation_curve
from riesz_lab.utils import sandbox

HOSTILE = dict(cases())


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_end_in_a_clear_error(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sandbox, "CPU_SECONDS", 2)
    (tmp_path / name).write_bytes(HOSTILE[name])
    with pytest.raises(BadFileError, match=re.escape(name)):
        inspect(tmp_path / name)
    assert not (tmp_path / SENTINEL).exists()


def test_there_are_at_least_20_hostile_files():
    assert len(HOSTILE) >= 20


@pytest.mark.parametrize(
    ("name", "stated"),
    [
        ("doubled-key.pt", "more processor time (2 s), memory or depth of nesting than a file of its size needs"),
        ("deep-key.pt", "more processor time (2 s), memory or depth of nesting than a file of its size needs"),
        ("tuple-key.pt", "expected names as keys, got a tuple"),
        ("many-views.pt", "shares them among tensors of 786,432,000"),
        ("text.pt", "it is text that begins '<svg"),
        ("png.pt", "it is a PNG image"),
        ("pickle.pt", "a pickle, which torch.save did not write"),
    ],
)
def test_an_error_says_what_is_wrong_with_the_file(name, stated, tmp_path, monkeypatch):
    monkeypatch.setattr(sandbox, "CPU_SECONDS", 2)
    (tmp_path / name).write_bytes(HOSTILE[name])
    with pytest.raises(BadFileError, match=re.escape(stated)):
        read_tensors(tmp_path / name)


@pytest.mark.parametrize("depth", [2_000, 20_000, 100_000, 300_000])
def test_a_key_of_any_depth_is_refused(depth, tmp_path, monkeypatch):
    (tmp_path / "deep.pt").write_bytes(deep_key(depth))
    with pytest.raises(BadFileError, match=r"depth of nesting|expected names as keys, got a tuple"):
        read_tensors(tmp_path / "deep.pt")


def test_a_module_beside_the_file_is_not_imported(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "torch.py").write_text(f"open({SENTINEL!r}, 'w')")
    (tmp_path / "w.pt").write_bytes(saved(weights()))
    assert len(read_tensors("w.pt")) == 3
    assert not (tmp_path / SENTINEL).exists()


def test_numbers_that_several_names_share_are_read(tmp_path):
    shared = torch.randn(16, 8, 3, 3)
    (tmp_path / "w.pt").write_bytes(saved({"a.weight": shared, "b.weight": shared, 3: shared[:8]}))
    assert list(read_tensors(tmp_path / "w.pt")) == ["a.weight", "b.weight", "3"]


@pytest.mark.parametrize("kind", ["pt", "safetensors"])
def test_names_cannot_write_to_the_terminal(kind, tmp_path, riesz):
    state = {"a\x1b[31m\nb\x9b\u202ec.weight": torch.randn(16, 8, 3, 3)}
    file = tmp_path / f"w\x1b[32m.{kind}"
    save_file(state, file) if kind == "safetensors" else file.write_bytes(saved(state))
    status, out, _ = riesz("inspect", file)
    assert status == 0
    assert r"a\x1b[31m\nb\x9b\u202ec.weight" in out
    assert not set("\x1b\x9b\u202e") & set(out)
    (tmp_path / "junk\x1b[33m.pt").write_bytes(b"\x1b[31m junk")
    _, _, err = riesz("inspect", tmp_path / "junk\x1b[33m.pt")
    assert r"junk\x1b[33m.pt" in err
    assert "\x1b" not in err


def test_missing_file_and_folder_are_named(tmp_path):
    with pytest.raises(BadFileError, match="nowhere"):
        read_tensors(tmp_path / "nowhere.pt")
    with pytest.raises(BadFileError, match="expected a file"):
        read_tensors(tmp_path)


def weights():
    return {"a.weight": torch.randn(16, 8, 3, 3), "a.bias": torch.randn(16), "b.weight": torch.randn(4, 16)}


def test_every_format_gives_the_same_tensors(tmp_path):
    state = weights()
    save_file(state, tmp_path / "1")
    (tmp_path / "2").write_bytes(saved(state))
    (tmp_path / "3").write_bytes(legacy({"state_dict": state, "optimizer": {"exp_avg": torch.ones(16, 8, 3, 3)}}))
    for name in "123":
        found = read_tensors(tmp_path / name)
        assert found.keys() == state.keys()
        assert all(torch.equal(found[key], state[key]) for key in state)


def test_a_checkpoint_that_holds_itself_is_walked_once(tmp_path):
    state = {"weight": torch.randn(8, 8, 3, 3)}
    nested = [state]
    for _ in range(40):
        nested = [nested, nested]
    (tmp_path / "nested.pt").write_bytes(saved({"a": nested, "b": state}))
    assert list(read_tensors(tmp_path / "nested.pt")) == ["b.weight"]


def test_curve_is_the_mean_correlation_at_each_distance():
    weight = np.random.default_rng(0).normal(size=(12, 9, 4))
    alike = np.corrcoef(weight.reshape(12, -1))
    found = regularity(weight)
    expected = [np.diagonal(alike, d).mean() for d in range(1, 12)]
    np.testing.assert_allclose(found.curve_D, expected, atol=1e-12)
    np.testing.assert_allclose(correlation_curve(weight), expected, atol=1e-12)
    np.testing.assert_allclose(found.level, alike[np.triu_indices(12, 1)].mean(), atol=1e-12)


@pytest.mark.parametrize("n", [11, 12])
def test_spectrum_is_the_share_of_power_by_frequency(n):
    weight = np.random.default_rng(1).normal(size=(n, 8, 3)) + 0.3
    power = np.square(np.abs(np.fft.fft(weight.reshape(n, -1), axis=0))).sum(1)
    expected = [power[0], *(power[k] + (power[-k] if 2 * k != n else 0) for k in range(1, n // 2 + 1))]
    np.testing.assert_allclose(regularity(weight).spectrum_F, np.array(expected) / power.sum(), atol=1e-12)


def smooth(rng, n=32):
    """Filters that vary slowly from one to the next."""
    steps = np.cumsum(rng.normal(size=(n, 16, 9)), axis=0)
    return steps - steps.mean(0)


def test_order_is_found_where_it_is_and_gone_when_shuffled():
    rng = np.random.default_rng(2)
    weight = smooth(rng)
    assert regularity(weight).p < 1e-3
    assert regularity(weight).order > 0.1
    assert regularity(rng.permutation(weight)).p > 0.01


def test_level_is_found_where_filters_share_a_part():
    rng = np.random.default_rng(3)
    noise = rng.normal(size=(32, 16, 9))
    shared = regularity(noise + 0.5 * rng.normal(size=(1, 16, 9)))
    assert shared.level > shared.level_error > 0
    assert shared.p > 0.01


def test_p_and_interval_keep_their_promise_on_noise():
    """100 layers of noise: about 5 with p < 0.05, about 95 intervals that hold 0; limits are binomial, 1 in 10,000."""
    rng = np.random.default_rng(4)
    found = [regularity(rng.normal(size=(10, 12, 1)), seed) for seed in range(100)]
    assert sum(one.p < 0.05 for one in found) <= 14
    assert sum(abs(one.level) <= one.level_error for one in found) >= 85


@pytest.mark.parametrize(
    ("tensor", "reason"),
    [
        (torch.zeros(16, 8, 3, 3), "too small"),
        (torch.full((16, 8, 3, 3), float("nan")), "not finite"),
        (torch.zeros(16, 8, 3, 3, dtype=torch.int8), "int8"),
        (torch.zeros(0, 8, 3, 3), "empty"),
        (torch.zeros(4, 4, 3, 3), "too small"),
        (torch.zeros(16, 8, 3, 3, device="meta"), "without values"),
    ],
)
def test_layers_that_cannot_be_examined_say_why(tensor, reason):
    (layer,) = inspect_tensors("file", {"weight": tensor}).layers
    assert reason in layer.skipped


def test_verdicts():
    rng = np.random.default_rng(5)
    regular = {f"{i}": torch.tensor(smooth(rng)).view(32, 16, 3, 3) for i in range(3)}
    noise = {f"{i}": torch.tensor(rng.normal(size=(32, 16, 3, 3))) for i in range(3)}
    common = {
        f"{i}": tensor + 0.5 * torch.tensor(rng.normal(size=(1, 16, 3, 3))) for i, tensor in enumerate(noise.values())
    }

    def answers(tensors):
        return [answer for _, answer, _ in inspect_tensors("file", tensors).findings]

    assert answers(regular)[0] == "Yes"
    assert answers(noise) == ["No evidence", "No evidence"]
    assert answers(common) == ["No evidence", "Yes"]
    assert answers(regular | {f"n{k}": v for k, v in noise.items()})[0] == "In part"
    text = inspect_tensors("c", common).verdict
    neighbours = "Are neighbouring filters along the output alike, as Sobolev metrics assume?"
    assert text.startswith(f"{neighbours} No evidence: more than")
    assert "Do all filters have a common part, as re-weighted L2 assumes? Yes: their correlation" in text
    assert inspect_tensors("d", {"bias": torch.zeros(3)}).verdict.startswith("Are filters alike? Nothing can be")


def test_matrices_that_were_skipped_are_named_with_the_option_and_no_figure_is_offered(tmp_path, capsys):
    weight = torch.randn(10, 32, generator=torch.Generator().manual_seed(0))
    tensors = {"fc.weight": weight, "fc.bias": torch.zeros(10)}
    file = str(tmp_path / "w.safetensors")
    save_file(tensors, file)
    assert cli.main(["inspect", file]) == 0
    out = capsys.readouterr().out
    expected = "no conv weight with 8 filters or more; 1 matrix was skipped: add --layers all."
    assert f"Are filters alike? Nothing can be said: {expected}" in out
    assert "With figures" not in out
    assert cli.main(["inspect", file, "--layers", "all"]) == 0
    out = capsys.readouterr().out
    assert "No evidence: more than in random order in 0 of 1 layer" in out
    assert "With figures: add -o inspection.html" in out
    # Nothing was skipped here: the weight is too small.
    assert "no weight has 8 filters" in inspect_tensors("s", {"w": torch.randn(4, 4, 3, 3)}).verdict


def test_a_common_part_is_corrected_for_the_number_of_layers():
    rng = np.random.default_rng(0)
    weak = torch.tensor(rng.normal(size=(16, 32, 1)) + 0.3 * rng.normal(size=(1, 32, 1)))
    noise = {f"{i}": torch.tensor(rng.normal(size=(16, 32, 1))) for i in range(5)}
    alone, among = inspect_tensors("alone", {"weak": weak}), inspect_tensors("among", {"weak": weak, **noise})
    ((_, found),) = alone.along("output")
    assert 0.01 < found.level_p < 0.05
    assert found.level > found.level_error
    assert alone.with_common_part("output") == ["weak"]
    assert among.with_common_part("output") == []


def test_command_prints_a_table_and_writes_a_page(tmp_path, capsys):
    save_file(weights(), tmp_path / "w.safetensors")
    (tmp_path / "bad.pt").write_bytes(b"x")
    page = tmp_path / "page.html"
    assert cli.main(["inspect", str(tmp_path / "w.safetensors"), str(tmp_path / "bad.pt"), "-o", str(page)]) == 1
    out, err = capsys.readouterr()
    assert "a.weight  16x8x3x3  output" in out
    assert "bad.pt" in err
    assert "Correlation between filters by distance" in page.read_text()
    assert cli.main(["inspect", str(tmp_path / "w.safetensors"), "--layers", "all"]) == 0
    assert "b.weight  4x16" in capsys.readouterr().out
