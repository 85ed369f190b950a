"""Values as plain data in files, in formats that hold no code: JSON, npy, Arrow, safetensors.

`writing.py` runs where the value is, beside a function in a rank: it stands alone, on Python 3.8 and the
standard library. `parsing.py`, its counterpart, does so too; `reading.py` runs in the client.
None pickles: what is not plain data is refused by name.
"""
