"""Results of milarun 2020, read as they are."""
