"""Random programs run eagerly and compiled, in step."""
