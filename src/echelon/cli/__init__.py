"""The command line: each command parses, makes one call, and renders. The only package that prints.

It imports no engine. `main` turns errors into exit codes, `options` are those that several commands share,
`help` shows a long command's first options, all of them, or those that match a word."""
