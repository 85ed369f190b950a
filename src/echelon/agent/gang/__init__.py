"""The gang: the agents of one run, which start and end together. Agent 0 leads, the others join it.

The decisions are pure: `decisions`, `generation`, `verdict`, `giving_way`, `rounds` (which checkpoints are
safe), and, for ranks that wait, `hang`, `stillness` and `lateness`. `leader`, `member` and `wire` carry them
out."""
