"""The cases, by theme. Each is a function that a stranger can read as a timeline."""
