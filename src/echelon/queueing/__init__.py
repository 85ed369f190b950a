"""The order of a queue: which run starts next, which waits for what, and when it could start.

`policy` decides over an abstract `Room`, pure; `room` is the Room of a cluster's snapshot, where placement
finds a place for each run on the nodes as they are after runs have started or ended.
`echelon queue` shows what they find."""
