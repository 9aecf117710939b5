"""Running trials: processes of this machine or of a Ray cluster, and what is shown meanwhile."""
