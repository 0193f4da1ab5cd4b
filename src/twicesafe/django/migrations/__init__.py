"""What `migrate` does for the app. The numbers and names are those that Django keeps in its table of migrations."""
