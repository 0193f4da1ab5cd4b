"""A Django project as a user would have it, for what needs settings of a whole process."""
