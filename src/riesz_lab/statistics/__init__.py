"""Does it help, by how much, how certain: scores of two methods, paired by seed.

Trials of one seed share their initial weights and the order of their images, so what counts is the difference within
each pair. `paired` compares two methods, `holm` corrects the comparisons of one table for their number.

    primary     the mean difference, its paired-t 95% interval and p, Holm-corrected over a table
    secondary   all other statistics of a comparison; they qualify a verdict and never decide it
"""

from riesz_lab.statistics.comparison import Comparison, paired
from riesz_lab.statistics.estimate import Estimate, crossed, independent
from riesz_lab.statistics.holm import adjusted, holm
from riesz_lab.statistics.seeds import components
from riesz_lab.statistics.verdict import Verdict, format_p

__all__ = [
    "Comparison",
    "Estimate",
    "Verdict",
    "adjusted",
    "components",
    "crossed",
    "format_p",
    "holm",
    "independent",
    "paired",
]
