"""Which nodes are legal at each level, as patterns.

A level is a list of families of rules. A node is legal if some rule holds for it and no veto of the
level does: a rule's function says True or False. `spec_full` allows what any level allows, and what
the passes of code generation make on the way from one to the next.
"""

from tgcore.uop.spec.base import Family, Spec
from tgcore.uop.spec.full import spec_full
from tgcore.uop.spec.kernel import spec_kernel
from tgcore.uop.spec.program import spec_program
from tgcore.uop.spec.shared import spec_shared
from tgcore.uop.spec.tensor import spec_tensor

__all__ = [
    "Family",
    "Spec",
    "spec_full",
    "spec_kernel",
    "spec_program",
    "spec_shared",
    "spec_tensor",
]
