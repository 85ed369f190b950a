"""A pipeline as a picture: its graph, where steps and lines are, and the drawing, as text, Mermaid and SVG.
Pure."""
