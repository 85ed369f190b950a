"""Where runs happen: the protocol that every engine offers, and one engine for each place.

`base` is the protocol, `abilities` what only some engines can do, `choose` the one module that knows engines
by name. The rest is what two engines share: the results folder and its reservation, writes that survive a
power cut (`durable`), what this machine remembers of runs elsewhere (`machine`), the agent's archive
(`kept_agent`)."""
