"""How models hold at sites held out, which one is kept, and whether it holds at a new site."""
