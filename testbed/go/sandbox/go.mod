module testbed/sandbox

go 1.26
