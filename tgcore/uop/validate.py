"""Proves that a linear program stays inside its memory, or finds values for which it does not.

Every load and store is looked at where it stands: in the loops that are open there, under the
conditions of the branches that are open there and under its own gate (lane by lane, if the gate is
a vector). Loop variables, positions in the launch and variables take all values that their sizes
and bounds allow; what was loaded can be any value of its type.

Bounds decide most accesses. The others are put to z3 (see `tgcore.uop.smt`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from tgcore.dtype import AddrSpace, PtrDType, dtypes
from tgcore.errors import OutOfBoundsError, UndecidedBoundsError
from tgcore.uop.node import UOp, unobserved
from tgcore.uop.ops import GroupOp, Ops
from tgcore.uop.smt import OOB_TIMEOUT, Counterexample, Lanes, Query, value_of

# what was proved, by address: (conditions, loops, elements)
_Proved = weakref.WeakKeyDictionary["UOp", set[tuple[object, ...]]]
_proved: _Proved = weakref.WeakKeyDictionary()


class Access(NamedTuple):
    """So many neighbouring elements at an address, and what holds where they are accessed."""

    verb: str
    address: UOp
    elements: int
    conditions: tuple[UOp, ...]
    loops: tuple[UOp, ...]

    @property
    def memory(self) -> UOp:
        """The memory that the address points into."""
        node = self.address.src[0]
        while node.op is Ops.AFTER:
            node = node.src[0]
        return node

    @property
    def size(self) -> int:
        """How many elements the memory has."""
        return int(self.memory.dtype.size)


class Group(NamedTuple):
    """Neighbouring lanes of an access that have one gate (None: they have none)."""

    gate: UOp | None
    first: int
    last: int


def validate(program: Sequence[UOp], name: str) -> None:
    """Raises OutOfBoundsError if an access of the program may lie outside its memory."""
    lanes = Lanes()
    with unobserved():  # scalar expressions are made only to be looked at
        for access in accesses(program):
            if not _is_proved(access):
                _prove(access, lanes, name)
                _remember(access)


def accesses(program: Sequence[UOp]) -> Iterator[Access]:
    """All loads and stores, and addresses that anything else uses."""
    conditions: list[UOp] = []
    loops: list[UOp] = []
    for node in program:
        if node.op is Ops.RANGE:
            loops.append(node)
        elif node.op is Ops.END:
            loops.remove(node.src[1])
        elif node.op is Ops.IF:
            conditions.append(node.src[0])
        elif node.op is Ops.ENDIF:
            conditions.remove(node.src[0].src[0])
        else:
            for address in dict.fromkeys(s for s in node.src if s.op is Ops.INDEX):
                elements = _elements(node, address)
                verb = {Ops.LOAD: "load", Ops.STORE: "store"}.get(node.op, "use")
                yield Access(verb, address, elements, tuple(conditions), tuple(loops))


def _elements(node: UOp, address: UOp) -> int:
    """How many elements of the memory the node accesses at the address."""
    if node.op is Ops.LOAD:
        value = node.dtype
    elif node.op is Ops.STORE:
        value = node.src[1].dtype
    else:
        return 1
    return int(value.count // address.dtype.base.count)


# *** what was proved before ***


def _key(access: Access) -> tuple[object, ...]:
    return (access.conditions, access.loops, access.elements)


def _is_proved(access: Access) -> bool:
    return _key(access) in _proved.get(access.address, ())


def _remember(access: Access) -> None:
    _proved.setdefault(access.address, set()).add(_key(access))


# *** proofs ***


def _prove(access: Access, lanes: Lanes, name: str) -> None:
    index = access.address.src[1]
    if access.size < 0:  # memory of unknown size
        return
    groups = [g for g in _groups(access, lanes) if not _inside_by_bounds(index, g, access.size)]
    if not groups:
        return
    (index,) = lanes.of(index)
    conditions = [c for condition in access.conditions for c in lanes.of(condition)]
    for group in groups:
        _ask(access, group, index, conditions, name)


def _groups(access: Access, lanes: Lanes) -> list[Group]:
    """The lanes whose gate may be open, neighbours with the same gate together."""
    if len(access.address.src) < 3:
        return [Group(None, 0, access.elements - 1)]
    gates = lanes.of(access.address.src[2])
    if len(gates) == 1:
        gates = gates * access.elements
    groups: list[Group] = []
    for lane, gate in enumerate(gates):
        if not gate.vmax:
            continue
        if groups and groups[-1].gate is gate and groups[-1].last == lane - 1:
            groups[-1] = groups[-1]._replace(last=lane)
        else:
            groups.append(Group(gate, lane, lane))
    return groups


def _inside_by_bounds(index: UOp, group: Group, size: int) -> bool:
    return bool(index.vmin + group.first >= 0 and index.vmax + group.last < size)


def _ask(access: Access, group: Group, index: UOp, conditions: list[UOp], name: str) -> None:
    """Puts the lanes of the group to z3."""
    query = Query()
    gates = [c for c in (*conditions, group.gate) if c is not None and not c.vmin]
    for condition in gates:
        query.assume(condition)
    for loop in access.loops:
        query.term(loop)
    position = query.term(index)
    outside = query.z3.Or(position + group.first < 0, position + group.last >= access.size)
    try:
        found = query.find(outside)
    except TimeoutError as error:
        raise UndecidedBoundsError(_undecided(access, index, gates, name, str(error))) from None
    if found is not None:
        raise _error(access, group, index, gates, found, name)


# *** messages ***


def _error(
    access: Access,
    group: Group,
    index: UOp,
    gates: list[UOp],
    found: Counterexample,
    name: str,
) -> OutOfBoundsError:
    names = _Names()
    text, gate = names.text(index), " and ".join(names.text(g) for g in gates)
    start = value_of(index, found.values)
    position = start + (group.first if start + group.first < 0 else group.last)
    values = {names.text(leaf): value for leaf, value in found.values.items() if names.knows(leaf)}
    lines = [
        f"kernel {name}: a {access.verb} may lie outside {_describe(access)}",
        f"  index:  {text}{_lanes_text(access, group)}",
        f"  gate:   {gate or 'none'}",
        f"  values: {', '.join(f'{k} = {v}' for k, v in values.items()) or 'any'}",
        f"  then element {position} is accessed; there are 0..{access.size - 1}",
    ]
    if found.assumed:
        unknown = ", ".join(names.text(n) for n in found.assumed)
        lines.append(f"  it is not known what these can be, so they were taken as given: {unknown}")
    return OutOfBoundsError(
        "\n".join(lines),
        kernel=name,
        memory=_memory_name(access.memory),
        size=access.size,
        index=text,
        gate=gate,
        values=values,
        position=position,
    )


def _undecided(access: Access, index: UOp, gates: list[UOp], name: str, reason: str) -> str:
    names = _Names()
    return "\n".join(
        [
            f"kernel {name}: z3 could not decide ({reason}) whether a {access.verb} stays inside "
            f"{_describe(access)}",
            f"  index:  {names.text(index)}",
            f"  gate:   {' and '.join(names.text(g) for g in gates) or 'none'}",
            f"  it may think for {int(OOB_TIMEOUT)} ms: OOB_TIMEOUT={int(OOB_TIMEOUT) * 10} gives "
            "it more time",
        ]
    )


def _describe(access: Access) -> str:
    base = access.memory.dtype.base
    plural = "" if access.size == 1 else "s"
    return f"{_memory_name(access.memory)} of {access.size} {base.name} element{plural}"


def _memory_name(memory: UOp) -> str:
    if not isinstance(memory.dtype, PtrDType):
        return str(memory.op)
    if memory.dtype.addrspace is AddrSpace.GLOBAL:
        return f"parameter {memory.arg}"
    kind = "local memory" if memory.dtype.addrspace is AddrSpace.LOCAL else "registers"
    return f"{kind} {memory.arg}"


def _lanes_text(access: Access, group: Group) -> str:
    if access.elements == 1:
        return ""
    return f", lanes {group.first}..{group.last} of {access.elements}"


# how strongly an op binds in text, and its sign; C's truncating / and % are meant
_SIGNS: Final = {
    Ops.MUL: (6, "*"),
    Ops.IDIV: (6, "/"),
    Ops.MOD: (6, "%"),
    Ops.ADD: (5, "+"),
    Ops.SUB: (5, "-"),
    Ops.SHL: (4, "<<"),
    Ops.SHR: (4, ">>"),
    Ops.AND: (3, "&"),
    Ops.XOR: (2, "^"),
    Ops.OR: (1, "|"),
    Ops.CMPLT: (0, "<"),
    Ops.CMPNE: (0, "!="),
    Ops.CMPEQ: (0, "=="),
}
_NAMED: Final = (Ops.RANGE, Ops.SPECIAL, Ops.LOAD)
_LONGEST: Final = 2000  # characters of an expression in a message


class _Names:
    """Expressions as text, each leaf under a name of its own."""

    def __init__(self) -> None:
        self.done: dict[UOp, tuple[int, str]] = {}
        self.taken: set[str] = set()
        self.floats = 0  # numbered: an index is not read for what its floats are made of

    def text(self, root: UOp) -> str:
        """The expression on one line."""
        for node in root.toposort(lambda n: n not in self.done):
            strength, text = self._entry(node)
            if len(text) > _LONGEST:  # what is used twice is written twice: this could explode
                text = text[:_LONGEST] + "..."
            self.done[node] = (strength, text)
        return self.done[root][1]

    def knows(self, leaf: UOp) -> bool:
        """Whether the leaf was named in some text."""
        return leaf in self.done

    def _entry(self, node: UOp) -> tuple[int, str]:
        parts = [self.done[s] for s in node.src]
        if node.op in (Ops.CONST, Ops.VCONST):
            return (9, str(node.arg)) if str(node.arg)[0] != "-" else (5, str(node.arg))
        if dtypes.is_float(node.dtype) and node.op not in _NAMED:
            self.floats += 1
            return (9, f"{node.dtype.scalar().name}#{self.floats}")
        if node.op in _SIGNS:
            return self._infix(node, parts)
        if node.op is Ops.WHERE:
            condition, yes, no = (self._inside(p, 0) for p in parts)
            return (-1, f"{yes} if {condition} else {no}")
        return (9, self._unique(node, [text for _, text in parts]))

    def _infix(self, node: UOp, parts: list[tuple[int, str]]) -> tuple[int, str]:
        strength, sign = _SIGNS[node.op]
        if node.dtype.scalar() is dtypes.bool and node.op is Ops.CMPNE and parts[1][1] == "True":
            return (7, f"!{self._inside(parts[0], 8)}")
        comparison = node.op in GroupOp.Comparison
        left = self._inside(parts[0], strength + comparison)
        return (strength, f"{left} {sign} {self._inside(parts[1], strength + 1)}")

    def _inside(self, part: tuple[int, str], least: int) -> str:
        return part[1] if part[0] >= least else f"({part[1]})"

    def _unique(self, node: UOp, parts: Iterable[str]) -> str:
        text = self._plain(node, ", ".join(parts))
        if node.op in _NAMED:
            while text in self.taken:  # another that looks the same
                text += "'"
            self.taken.add(text)
        return text

    def _plain(self, node: UOp, inner: str) -> str:
        texts: dict[Ops, Callable[[], str]] = {
            Ops.RANGE: lambda: "r" + "_".join(map(str, node.arg[:-1])),
            Ops.DEFINE_VAR: lambda: str(node.arg[0]),
            Ops.SPECIAL: lambda: str(node.arg),
            Ops.DEFINE_GLOBAL: lambda: f"data{node.arg}",
            Ops.INDEX: lambda: self._address(node),
            Ops.LOAD: lambda: self.done[node.src[0]][1],
            Ops.CAST: lambda: f"{node.dtype.name}({inner})",
            Ops.GEP: lambda: f"{inner}.{'.'.join(map(str, node.arg))}",
        }
        rule = texts.get(node.op)
        return f"{node.op.name.lower()}({inner})" if rule is None else rule()

    def _address(self, node: UOp) -> str:
        return f"{self.done[node.src[0]][1]}[{self.done[node.src[1]][1]}]"
