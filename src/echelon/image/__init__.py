"""Container images without a Docker daemon: a base image with two layers on top, packages and project.

An image is built through the registry's API alone: layers of the base are mounted or copied, never unpacked,
so that neither root nor a container runtime is needed.

`build` is the whole process. `reference` and `oci` are pure: names, and the image format. `layer` and
`wheels` make the layers and the documents of the new image. `registry` speaks the distribution API over
`transport`, the only file with HTTP; `credentials` finds the user's login. `archive` is an image in a file.
`dockerfile` calls a real builder, for users who have a Dockerfile.
"""
