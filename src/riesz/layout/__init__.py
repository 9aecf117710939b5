"""Where a parameter's directed axis lies and how its gradient folds around it."""
