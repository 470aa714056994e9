"""A fake NVIDIA driver with fake GPUs, in this process, behind `tgcore.hcq.files.FileSystem`.

    from tests.emulators.nv import GH100, FakeSystem
    system = FakeSystem([GH100], driver="580.142")

Calls come in at `system.py`; `rm.py` (objects, `allocate.py`, `controls.py`) and `uvm.py` are the
driver; `gpu.py` is a GPU: `host.py` fetches rings and pushbuffers, `copy.py` and `compute.py` are
its engines. `client.py` is the smallest client, for tests.

What a test can ask: `complaints` (a right program causes none), `objects()` (what is alive), `log`,
`parked()`, `gpus[i].xids`, `.launches`, `.segments` (text by `decode.lines`), `.hung()`.
What it can change: `register_code`, `register_cubin`, `fail_ioctl`, `fail_command`, `hook`,
`missing`, `delay`, `peers`, `kernel_budget`, `gpus[i].fail`, `.overlap`, `.compute_mode`, and the
profile, with `dataclasses.replace`.
"""

from tests.emulators.nv.profiles import AD102, GA100, GA102, GB100, GB202, GH100, PROFILES, Profile
from tests.emulators.nv.system import FakeSystem

__all__ = [
    "AD102",
    "GA100",
    "GA102",
    "GB100",
    "GB202",
    "GH100",
    "PROFILES",
    "FakeSystem",
    "Profile",
]
