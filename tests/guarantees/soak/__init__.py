"""A worker left alone, then at work, for long: whether it holds more at the end than at the beginning."""
