"""What every SQL store does, once: the statements, the tables, and the order in which statements are sent."""
