"""How a worker ends: what it holds then, for whom it waits, and the code that it leaves with."""
