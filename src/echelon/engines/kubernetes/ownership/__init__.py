"""Whose an object is: a run's own, or made for it by a controller."""
