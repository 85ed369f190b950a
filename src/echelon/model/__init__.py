"""The values that all other packages share: frozen, without input or output, standard library and msgspec
alone.

`settings` is what a user sets; `forms` are the ways to write a setting (a parser and its printer each),
`former` the names that settings had before. `job` is what the settings mean (`meaning` makes it, and the way
back). `cluster` is what there is, `world` who takes part, `plan` what will run where. `event` is what
happened, and `status` is folded from events. `pods/`, `engine/` and `output/` have more of each."""
