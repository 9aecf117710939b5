"""One script per claim; `harness` times, `targets` judges, `report` writes docs/benchmarks.md."""
