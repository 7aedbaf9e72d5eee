"""A page in the browser and an API over HTTP: teach, try and mend a classifier of one's own images."""
