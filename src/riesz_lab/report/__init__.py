"""The report: from stored trials to an answer one likes to read."""
