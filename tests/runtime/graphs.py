"""Small tensor graphs, scheduled and run without the front end."""

import numpy as np

from tgcore.dtype import dtypes
from tgcore.runtime import execute
from tgcore.runtime.buffer import Buffer
from tgcore.schedule.schedule import create_schedule
from tgcore.uop.node import UOp

DEVICE = "CPU"


def tensor(values, device=DEVICE):
    """A node over a new buffer with these values."""
    values = np.ascontiguousarray(values)
    node = UOp.new_buffer(device, values.size, dtypes.from_name(str(values.dtype)))
    execute.buffers[node] = Buffer(device, values.size, node.dtype, initial=values.tobytes())
    return node.reshape(values.shape)


def schedule(*nodes, device=DEVICE):
    """The schedule that stores the nodes, and where they end up."""
    wanted = [n.contiguous() for n in nodes]
    made = create_schedule(UOp.sink(*wanted), device)
    return made, [made.outputs[w].base for w in wanted]


def realize(*nodes, device=DEVICE, **variables):
    """BUFFER nodes that hold the values."""
    made, outputs = schedule(*nodes, device=device)
    execute.run(made.items, {**made.variables, **variables})
    return outputs


def values_of(node):
    """The values in a BUFFER node's memory."""
    return execute.buffer_of(node).numpy()


def memory(node):
    """The buffer of a tensor's node."""
    return execute.buffer_of(node.base)
