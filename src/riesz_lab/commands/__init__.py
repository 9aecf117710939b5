"""One file per command, each with `run(arguments) -> exit status`, and what some of them share."""

COMMANDS = {
    "demo": "train a small CNN with and without a metric and compare, in three minutes at most",
    "train": "train one trial of a recipe, or continue it",
    "sweep": "run a named set of trials and print the conclusions",
    "compare": "compare metrics on your own model and data, from a function of yours",
    "report": "write one page about stored trials: conclusions, tables, figures",
    "figure": "draw one figure of the report for a paper",
    "inspect": "measure in trained weights the regularity that the method assumes",
    "runs": "list, compare, export and remove stored trials",
    "recipes": "list the recipes and what they cost",
    "data": "list, fetch and verify datasets",
    "doctor": "list what is installed and test what works",
    "completion": "print a script with which your shell completes commands and options",
}
