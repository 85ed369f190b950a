"""A registry of images: its API, its logins, and its refusals as errors of ours."""
