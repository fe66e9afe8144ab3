"""The options of each command, in a file of its name: a function ``command``, whose docstring is the help."""
