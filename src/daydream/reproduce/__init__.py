"""The paper's tables and figures as data, and the grids of runs that reproduce them."""
