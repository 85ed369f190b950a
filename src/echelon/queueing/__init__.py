"""The order of a queue: which run starts next, which waits for what, and when it could start.

`policy` decides over an abstract `Room` (`rooms`), pure;
`room` is the Room of a cluster's snapshot, where placement finds a place for each run on `nodes_now`.
`echelon queue` shows what they find."""
