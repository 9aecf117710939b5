"""Pictures of the documentation. `make pictures` draws them all; each module writes the SVG of its own name."""
