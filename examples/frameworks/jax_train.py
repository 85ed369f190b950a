"""A line fitted with JAX: each process holds a part of the batch, and `jit` adds the gradients up."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

jax.distributed.initialize()  # echelon has set what it reads
mesh = Mesh(np.array(jax.devices()), ("batch",))
batch = NamedSharding(mesh, PartitionSpec("batch"))
random = np.random.default_rng(jax.process_index())
mine = random.normal(size=(64 * jax.local_device_count(), 1)).astype("float32")
x, y = (jax.make_array_from_process_local_data(batch, part) for part in (mine, 3 * mine + 1))


@jax.jit
def step(line, x, y):
    loss, slope = jax.value_and_grad(lambda line: jnp.mean((line[0] * x + line[1] - y) ** 2))(line)
    return line - 0.3 * slope, loss


line = jnp.zeros(2)
for number in range(1, 31):
    line, loss = step(line, x, y)
    if number % 10 == 0:
        print(f"step={number}/30 loss={loss:.6f}", flush=True)
where = f"process {jax.process_index()} of {jax.process_count()}"
print(f"{where}: y = {line[0]:.2f} x + {line[1]:.2f}", flush=True)
