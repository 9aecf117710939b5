"""HTML, Markdown and CSV reports from stored trials."""
