"""The values that all other packages share: frozen, without behaviour, standard library only, no input or
output.

`settings` is what a user sets, `job` what that means (`meaning` makes it), `cluster` what there is, `world`
who takes part, `plan` what will run where; `event` and `log` are what comes back, `status` is folded from
them.

`pods/` is what a user may say of pods, `engine/` what an engine has and tells, `output/` what ranks print."""
