"""Does it help, how much, how sure: scores of two methods, paired by seed.

Trials of one seed share their initial weights and the order of their images, so what counts is the difference within
each pair. `paired` makes a `Comparison` of two methods, `holm` corrects those of one table for their number.

    primary     the mean difference, its paired-t 95% interval and p, Holm-corrected over a table
    secondary   everything else a comparison holds; it may colour a verdict, it never makes one
"""

from riesz_lab.statistics.comparison import Comparison, paired
from riesz_lab.statistics.estimate import Estimate, crossed, independent
from riesz_lab.statistics.holm import adjusted, holm
from riesz_lab.statistics.seeds import components
from riesz_lab.statistics.verdict import format_p

__all__ = ["Comparison", "Estimate", "adjusted", "components", "crossed", "format_p", "holm", "independent", "paired"]
