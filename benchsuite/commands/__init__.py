"""One file a command; the file's name is the command's, its `command` the click command."""
