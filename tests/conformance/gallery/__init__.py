"""A gallery of servers: an honest one, and those that differ from it in one classic fault each."""
