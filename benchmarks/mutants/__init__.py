"""Small changes of the code, and how many of them the tests catch."""
