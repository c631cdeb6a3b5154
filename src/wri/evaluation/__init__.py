"""How predictors are judged: sites left out, and the futures of a new site."""
