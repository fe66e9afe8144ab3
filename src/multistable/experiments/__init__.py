"""The paper's experiments, and the demo: what is run, and the pages that show it."""
