"""What the jobs of the conformance suite do, as scripts for engines that run real processes.

`test_conformance.py` says the same to the memory engine, program by program.
"""

ASK = (
    "import os, signal, sys, time\n"
    "rank, restart = (int(os.environ[name]) for name in ('ECHELON_RANK', 'ECHELON_RESTART'))\n"
)
LAST = "while True: time.sleep(600)\n"
LINES = 200

SCRIPTS = {
    # Every rank says as much as it can at once, and its last line has no end.
    "talks.py": (
        f"for number in range({LINES}): print('rank', rank, 'line', number)\nsys.stdout.write('the end')\n"
    ),
    # Rank 1 fails, with an exit code of its own; the others would last.
    "fails.py": (
        "if rank == 1:\n"
        "    print('about to fail')\n"
        "    sys.stdout.flush()\n"
        "    import traceback\n"
        "    try:\n        raise ValueError('bad luck')\n"
        "    except ValueError:\n        traceback.print_exc()\n        sys.exit(3)\n" + LAST
    ),
    "measures.py": "for step in (1, 2, 4): print(f'step={step} loss={1 / step}')\n",
    "lasts.py": "print('ready')\n" + LAST,
    # Uses a processor, and says nothing.
    "computes.py": "while time.process_time() < 4.0: pass\n",
    # Says so when it is interrupted, however often, and ends at the first harder signal.
    "saves.py": (
        "def save(*_): print('saved', flush=True)\n"
        "signal.signal(signal.SIGINT, save)\nprint('ready', flush=True)\n" + LAST
    ),
    "refuses.py": "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('ready')\n" + LAST,
    "writes.py": (
        "from pathlib import Path\n"
        "output = Path(os.environ['ECHELON_OUTPUT'])\n"
        "if rank == 0:\n"
        "    (output / 'model').mkdir()\n"
        "    (output / 'model' / 'weights.bin').write_bytes(bytes(range(256)))\n"
        "    (output / 'notes.txt').write_text('all is well')\n"
        "print('written')\n"
    ),
    # Rank 0 fails at the first try, all is well at the second.
    "recovers.py": (
        "if restart == 0 and rank == 0: raise RuntimeError('first try')\nif restart == 0:\n    "
        + LAST
        + "print('restart', restart)\n"
    ),
    "keeps-failing.py": "sys.exit(f'try {restart}')\n",
    "is-killed.py": "print('so far', flush=True)\nos.kill(os.getpid(), signal.SIGKILL)\n",
    # The last rank serves the others for as long as they are there.
    "serves.py": "if rank == int(os.environ['ECHELON_RANKS']) - 1:\n    " + LAST + "print('done')\n",
    # Rank 2 dies of rank 1's failure. Both are dead before their agent, held up meanwhile, can look.
    "falls-apart.py": (
        "from pathlib import Path\n"
        "output, agent = Path(os.environ['ECHELON_OUTPUT']), os.getppid()\n"
        "def wait_for(name):\n"
        "    while not (output / name).exists(): time.sleep(0.01)\n"
        "    return (output / name).read_text()\n"
        "def put(name, text):\n"
        "    (output / f'.{name}').write_text(text)\n"
        "    (output / f'.{name}').rename(output / name)\n"
        "def is_dead(pid): return Path(f'/proc/{pid}/stat').read_text().rpartition(') ')[2][0] == 'Z'\n"
        "if rank == 0:\n"
        "    peers = wait_for('rank-1'), wait_for('rank-2')\n"
        "    os.kill(agent, signal.SIGSTOP)\n"
        "    put('go', '')\n"
        "    while not all(map(is_dead, peers)): time.sleep(0.01)\n"
        "    os.kill(agent, signal.SIGCONT)\n"
        "    " + LAST + "put(f'rank-{rank}', str(os.getpid()))\n"
        "wait_for('go')\n"
        "if rank == 1: raise ValueError('bad luck')\n"
        "raise ConnectionResetError(104, 'Connection reset by peer')\n"
    ),
}
