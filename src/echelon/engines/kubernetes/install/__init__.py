"""`echelon install`: the manager in a cluster, with exactly the rights that it uses.

`rights` is what it may do, `manifests` are its objects, `installation` makes and removes them."""
