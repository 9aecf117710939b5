"""Does it help *you*? Paired trials of your own function, and the conclusions they allow.

function    which form it has, what it is called, which settings it takes
identity    what makes two functions the same one, so that stored trials may be used
arms        metrics and settings, crossed: what is compared with what
attach      what the user's loop is handed
user_loop   one trial of the user's loop
question    what is asked, checked before anything is trained
reference   the name that other processes import the function by
trials      runs trials as sweeps do, or reads stored ones
fresh       stored trials that are trained anew
display     what is shown meanwhile
tuning      the best setting of every arm, chosen on held-out scores
rounds      seeds for all arms: a fixed number, or until a conclusion holds
margin      the largest difference that does not matter
outliers    trials far from all others
entry       `compare` itself: check, tune, run, answer
answer      the result
conclusions its sentence on every arm
remarks     its warnings, and how it came about
next_steps  what to do now
planning    how many pairs a conclusion takes
record      the answer on disk
"""

from riesz_lab.comparison.answer import Answer
from riesz_lab.comparison.entry import compare

__all__ = ["Answer", "compare"]
