"""Running a sweep's trials: driver, executors, workers, display."""
