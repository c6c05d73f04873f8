"""The sections of a report, each of which knows its words and columns; none knows how they are shown."""
