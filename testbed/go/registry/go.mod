module testbed/registry

go 1.26

require github.com/distribution/distribution/v3 v3.0.0
