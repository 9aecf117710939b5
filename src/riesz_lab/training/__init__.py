"""Training one trial: loop, checkpoints, devices, progress."""
