"""Who carries out the runs of a grid: processes of this machine that share a GPU, or a Ray cluster."""
