"""What each command does, in a file of its name: a function ``run``, which is given what the options say."""
