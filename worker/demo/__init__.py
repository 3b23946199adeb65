"""The first run: the same worker on sample answers, with its own broker and database."""
