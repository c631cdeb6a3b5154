"""How results look: colours, figures, tables."""
