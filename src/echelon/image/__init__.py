"""Container images without a Docker daemon: a base image, and two layers of the user's on top of it.

`echelon image build` calls `build`. An image is changed through the registry's API alone: layers of the base
are mounted or copied, never unpacked, so that neither root nor a container runtime is needed.

`build` tells the whole story. `reference`, `oci` and `compose` are pure: names, the image format, the new
image. `layer` and `packages` make the layers. `registry` speaks the distribution API over `transport`, which
is the only file that talks HTTP; `credentials` finds out as whom. `archive` is an image in a file.
`dockerfile` hands over to a real builder, for those who have a Dockerfile.
"""
