"""A report on an evaluation: numbers (measure), charts, and a page."""
