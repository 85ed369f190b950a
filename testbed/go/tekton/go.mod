module testbed/tekton

go 1.26

require github.com/tektoncd/pipeline v1.6.0
