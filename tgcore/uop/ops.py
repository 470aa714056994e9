"""The table of all ops: what they mean, how many sources they take, where they may appear."""

from __future__ import annotations

from enum import Enum, IntEnum, auto
from typing import Final, NamedTuple


class Ops(IntEnum):
    """The kinds of nodes, in the order in which a linear program prefers them."""

    # structure that no device sees
    UNIQUE = auto()
    DEVICE = auto()
    KERNEL = auto()
    # memory and launch parameters
    DEFINE_GLOBAL = auto()
    DEFINE_VAR = auto()
    DEFINE_LOCAL = auto()
    DEFINE_REG = auto()
    SPECIAL = auto()
    # structure
    NOOP = auto()
    SINK = auto()
    GROUP = auto()
    AFTER = auto()
    GEP = auto()
    VECTORIZE = auto()
    CAT = auto()
    PTRCAT = auto()
    UNROLL = auto()
    CONTRACT = auto()
    # memory
    INDEX = auto()
    LOAD = auto()
    STORE = auto()
    # unary
    CAST = auto()
    BITCAST = auto()
    EXP2 = auto()
    LOG2 = auto()
    SIN = auto()
    SQRT = auto()
    RECIPROCAL = auto()
    NEG = auto()
    TRUNC = auto()
    # binary
    ADD = auto()
    MUL = auto()
    SUB = auto()
    FDIV = auto()
    IDIV = auto()
    MOD = auto()
    MAX = auto()
    POW = auto()
    SHL = auto()
    SHR = auto()
    AND = auto()
    OR = auto()
    XOR = auto()
    CMPLT = auto()
    CMPNE = auto()
    CMPEQ = auto()
    THREEFRY = auto()
    # ternary
    WHERE = auto()
    MULACC = auto()
    WMMA = auto()
    # control
    RANGE = auto()
    END = auto()
    IF = auto()
    ENDIF = auto()
    BARRIER = auto()
    # constants
    CONST = auto()
    VCONST = auto()
    # tensor level
    BUFFER = auto()
    BUFFER_VIEW = auto()
    COPY = auto()
    ASSIGN = auto()
    BUFFERIZE = auto()
    CONTIGUOUS = auto()
    CONTIGUOUS_BACKWARD = auto()
    CUSTOM_GRADIENT = auto()
    DETACH = auto()
    BIND = auto()
    MULTI = auto()
    MSELECT = auto()
    MSTACK = auto()
    ALLREDUCE = auto()
    # movement
    RESHAPE = auto()
    PERMUTE = auto()
    EXPAND = auto()
    PAD = auto()
    SHRINK = auto()
    FLIP = auto()
    # reduce
    REDUCE_AXIS = auto()
    REDUCE = auto()
    # text put in a kernel by hand
    CUSTOM = auto()
    CUSTOMI = auto()

    def __repr__(self) -> str:
        return f"Ops.{self.name}"

    __str__ = __repr__


class AxisType(Enum):
    """What a range of a kernel becomes: loop, lanes, threads, ..."""

    MULTI = "multi"
    LOOP = "loop"
    THREAD = "thread"
    GLOBAL = "global"
    WARP = "warp"
    LOCAL = "local"
    GROUP_REDUCE = "group_reduce"
    UPCAST = "upcast"
    REDUCE = "reduce"
    UNROLL = "unroll"

    def __repr__(self) -> str:
        return str(self)

    def __lt__(self, other: AxisType) -> bool:
        return AXIS_ORDER[self] < AXIS_ORDER[other]


class AxisStyle(NamedTuple):
    """How an axis type is shown, and where its axes stand in a kernel."""

    letter: str
    color: str
    order: int


AXIS_STYLE: Final = {
    AxisType.MULTI: AxisStyle("m", "GREEN", 0),
    AxisType.LOOP: AxisStyle("L", "WHITE", 1),
    AxisType.THREAD: AxisStyle("t", "BLUE", 2),
    AxisType.GLOBAL: AxisStyle("g", "blue", 2),
    AxisType.WARP: AxisStyle("w", "CYAN", 3),
    AxisType.LOCAL: AxisStyle("l", "cyan", 4),
    AxisType.GROUP_REDUCE: AxisStyle("G", "RED", 4),
    AxisType.UPCAST: AxisStyle("u", "yellow", 5),
    AxisType.REDUCE: AxisStyle("R", "red", 6),
    AxisType.UNROLL: AxisStyle("r", "magenta", 7),
}
AXIS_ORDER: Final = {axis: style.order for axis, style in AXIS_STYLE.items()}


class GroupOp:
    """Sets of ops that rules speak of."""

    Unary: Final = frozenset(
        {Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.SQRT, Ops.RECIPROCAL, Ops.NEG, Ops.TRUNC}
    )
    Binary: Final = frozenset(
        {
            *(Ops.ADD, Ops.MUL, Ops.SUB, Ops.FDIV, Ops.IDIV, Ops.MOD, Ops.MAX, Ops.POW),
            *(Ops.SHL, Ops.SHR, Ops.AND, Ops.OR, Ops.XOR),
            *(Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ, Ops.THREEFRY),
        }
    )
    Ternary: Final = frozenset({Ops.WHERE, Ops.MULACC})
    ALU: Final = Unary | Binary | Ternary
    Elementwise: Final = ALU | {Ops.CAST, Ops.BITCAST}
    Comparison: Final = frozenset({Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ})
    Commutative: Final = frozenset(
        {Ops.ADD, Ops.MUL, Ops.MAX, Ops.CMPNE, Ops.CMPEQ, Ops.XOR, Ops.AND, Ops.OR}
    )
    Associative: Final = frozenset({Ops.ADD, Ops.MUL, Ops.AND, Ops.OR, Ops.MAX})
    Idempotent: Final = frozenset({Ops.OR, Ops.AND, Ops.MAX})
    Movement: Final = frozenset(
        {Ops.RESHAPE, Ops.EXPAND, Ops.PERMUTE, Ops.PAD, Ops.SHRINK, Ops.FLIP}
    )
    Define: Final = frozenset({Ops.DEFINE_GLOBAL, Ops.DEFINE_LOCAL, Ops.DEFINE_REG})
    Constant: Final = frozenset({Ops.CONST, Ops.VCONST})
    # f(0) is not 0 for these, so they do not move into a padded region
    UnsafePad: Final = frozenset({Ops.RECIPROCAL, Ops.LOG2, Ops.EXP2, Ops.IDIV, Ops.POW, Ops.FDIV})
    All: Final = frozenset(Ops)


class OpInfo(NamedTuple):
    """One row of the table of ops."""

    sources: str
    meaning: str
    levels: str  # t tensor, k kernel, p program


TABLE: Final[dict[Ops, OpInfo]] = {
    Ops.UNIQUE: OpInfo("", "a number that makes its consumer one of a kind", "t"),
    Ops.DEVICE: OpInfo("", "a device's name", "t"),
    Ops.KERNEL: OpInfo("buffers...", "a call of a kernel, arg holds its program", "t"),
    Ops.DEFINE_GLOBAL: OpInfo("", "a buffer parameter; arg is its number", "kp"),
    Ops.DEFINE_VAR: OpInfo("", "an integer parameter; arg is (name, least, greatest)", "tkp"),
    Ops.DEFINE_LOCAL: OpInfo("", "memory shared by a work group", "kp"),
    Ops.DEFINE_REG: OpInfo("", "registers of one work item", "kp"),
    Ops.SPECIAL: OpInfo("size", "the position in the launch: g0.., l0.., t0", "kp"),
    Ops.NOOP: OpInfo("any...", "nothing", "kp"),
    Ops.SINK: OpInfo("any...", "what must be computed", "tkp"),
    Ops.GROUP: OpInfo("any...", "several effects as one", "kp"),
    Ops.AFTER: OpInfo("value, effects...", "the value, ordered after the effects", "tkp"),
    Ops.GEP: OpInfo("vector", "the lanes that arg names", "kp"),
    Ops.VECTORIZE: OpInfo("scalars...", "a vector of the scalars", "tkp"),
    Ops.CAT: OpInfo("vectors...", "the vectors joined", "kp"),
    Ops.PTRCAT: OpInfo("pointers...", "addresses of the parts of one vector", "k"),
    Ops.UNROLL: OpInfo("vector, range", "the lane that the range names", "k"),
    Ops.CONTRACT: OpInfo("value, range", "a lane for each step of the range", "k"),
    Ops.INDEX: OpInfo("memory, indices..., gate?", "an address, or the value there", "tkp"),
    Ops.LOAD: OpInfo("address, alternative?", "what memory holds", "kp"),
    Ops.STORE: OpInfo("address, value", "memory gets the value", "tkp"),
    Ops.CAST: OpInfo("x", "the value in another type", "tkp"),
    Ops.BITCAST: OpInfo("x", "the bits as another type of the same size", "tkp"),
    Ops.EXP2: OpInfo("x", "2 to the x", "tkp"),
    Ops.LOG2: OpInfo("x", "logarithm to base 2", "tkp"),
    Ops.SIN: OpInfo("x", "sine", "tkp"),
    Ops.SQRT: OpInfo("x", "square root", "tkp"),
    Ops.RECIPROCAL: OpInfo("x", "1 / x", "tkp"),
    Ops.NEG: OpInfo("x", "-x", "tkp"),
    Ops.TRUNC: OpInfo("x", "x rounded towards zero", "tkp"),
    Ops.ADD: OpInfo("a, b", "a + b; of bools: or", "tkp"),
    Ops.MUL: OpInfo("a, b", "a * b; of bools: and", "tkp"),
    Ops.SUB: OpInfo("a, b", "a - b", "tkp"),
    Ops.FDIV: OpInfo("a, b", "a / b of floats", "tkp"),
    Ops.IDIV: OpInfo("a, b", "a / b of integers, towards zero; of indices, rounded down", "tkp"),
    Ops.MOD: OpInfo("a, b", "what IDIV leaves: a - IDIV(a, b) * b", "tkp"),
    Ops.MAX: OpInfo("a, b", "the greater one; nan if one is nan", "tkp"),
    Ops.POW: OpInfo("a, b", "a to the b", "tkp"),
    Ops.SHL: OpInfo("a, b", "a << b", "tkp"),
    Ops.SHR: OpInfo("a, b", "a >> b, arithmetic if signed", "tkp"),
    Ops.AND: OpInfo("a, b", "bitwise and", "tkp"),
    Ops.OR: OpInfo("a, b", "bitwise or", "tkp"),
    Ops.XOR: OpInfo("a, b", "bitwise exclusive or", "tkp"),
    Ops.CMPLT: OpInfo("a, b", "a < b", "tkp"),
    Ops.CMPNE: OpInfo("a, b", "a != b", "tkp"),
    Ops.CMPEQ: OpInfo("a, b", "a == b", "tkp"),
    Ops.THREEFRY: OpInfo("counter, key", "Threefry-2x32 of a 64-bit counter and key", "tkp"),
    Ops.WHERE: OpInfo("condition, a, b", "a where the condition holds, else b", "tkp"),
    Ops.MULACC: OpInfo("a, b, c", "a * b + c, rounded once", "kp"),
    Ops.WMMA: OpInfo("a, b, c", "what this lane holds of a @ b + c; arg is a TensorCore", "kp"),
    Ops.RANGE: OpInfo("size", "a loop variable; arg is (number..., axis type)", "tkp"),
    Ops.END: OpInfo("effect, ranges...", "closes the loops around the effect", "tkp"),
    Ops.IF: OpInfo("condition", "opens a branch (linear programs only)", "p"),
    Ops.ENDIF: OpInfo("if", "closes a branch (linear programs only)", "p"),
    Ops.BARRIER: OpInfo("effects...", "waits for the work group", "kp"),
    Ops.CONST: OpInfo("device?", "the same value for all lanes", "tkp"),
    Ops.VCONST: OpInfo("", "a value for each lane", "tkp"),
    Ops.BUFFER: OpInfo("unique, device", "memory of arg elements", "t"),
    Ops.BUFFER_VIEW: OpInfo("buffer", "a part of memory; arg is (size, offset)", "t"),
    Ops.COPY: OpInfo("x, device", "x on another device", "t"),
    Ops.ASSIGN: OpInfo("target, value", "target after it was overwritten with value", "t"),
    Ops.BUFFERIZE: OpInfo("value, ranges...", "the value stored, an element for each index", "t"),
    Ops.CONTIGUOUS: OpInfo("x", "x, stored", "t"),
    Ops.CONTIGUOUS_BACKWARD: OpInfo("x", "x; its gradient is stored", "t"),
    Ops.CUSTOM_GRADIENT: OpInfo("x, inputs...", "x; arg names the rule for its gradient", "t"),
    Ops.DETACH: OpInfo("x", "x; it has no gradient", "t"),
    Ops.BIND: OpInfo("variable, value", "the variable, which has the value now", "t"),
    Ops.MULTI: OpInfo("x", "one tensor over several devices; arg is the axis", "t"),
    Ops.MSELECT: OpInfo("x", "the part on one device; arg is its number", "t"),
    Ops.MSTACK: OpInfo("parts...", "the parts on several devices as one", "t"),
    Ops.ALLREDUCE: OpInfo("x, device", "x reduced over its devices; arg is the op", "t"),
    Ops.RESHAPE: OpInfo("x, shape", "the elements in another shape", "t"),
    Ops.PERMUTE: OpInfo("x", "the axes in another order, arg", "t"),
    Ops.EXPAND: OpInfo("x, shape", "axes of size 1 repeated", "t"),
    Ops.PAD: OpInfo("x, before, shape", "zeros around x", "t"),
    Ops.SHRINK: OpInfo("x, begin, shape", "a box cut out of x", "t"),
    Ops.FLIP: OpInfo("x", "the axes in arg reversed", "t"),
    Ops.REDUCE_AXIS: OpInfo("x", "axes reduced to size 1; arg is (op, axes)", "t"),
    Ops.REDUCE: OpInfo("value, ranges...", "the value reduced over ranges; arg is the op", "tk"),
    Ops.CUSTOM: OpInfo("any...", "a statement, arg is its format", "kp"),
    Ops.CUSTOMI: OpInfo("any...", "an expression, arg is its format", "kp"),
}
