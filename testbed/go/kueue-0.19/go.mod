module testbed/kueue-0.19

go 1.26.0

require sigs.k8s.io/kueue v0.19.2

// For equal versions of what it shares with `trainer-2.3`, which is then compiled once.
require (
	github.com/coreos/go-oidc/v3 v3.20.0 // indirect
	github.com/go-logr/logr v1.4.4 // indirect
	golang.org/x/crypto v0.54.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/term v0.45.0 // indirect
	golang.org/x/text v0.40.0 // indirect
)

// `go.sum` has the one module that the checksum database does not answer for, from Kueue's own go.sum.
