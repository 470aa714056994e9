"""PTX text to data. What is not known is an error that names the line."""

from __future__ import annotations

import bisect
import re
import struct
from dataclasses import dataclass, field

from .faults import PtxError
from .syntax import (
    Address,
    Float,
    Function,
    Group,
    Guard,
    Instruction,
    Int,
    Label,
    Name,
    Operand,
    Pair,
    Registers,
    Relocation,
    Scope,
    Statement,
    Targets,
    Variable,
    Vector,
)
from .types import TYPES, Type

_COMMENT = re.compile(r'"[^"\n]*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_SPACE = re.compile(r"\s*")
_LABEL = re.compile(r"([\w$%]+)\s*:(?!:)")
_INSTRUCTION = re.compile(
    r"(?:@(!?)([%\w$.]+)\s+)?([a-z][\w.:]*)\s*([^;{}]*(?:\{[^;}]*\}[^;{}]*)*);"
)
_DIRECTIVE = re.compile(r"\.[A-Za-z_][\w]*")
_OPERAND = re.compile(
    r"\s*(?:(?P<name>!?\s*[%$_A-Za-z][\w$%.]*)"
    r"|(?P<number>[-+]?(?:0[fF][0-9a-fA-F]{8}\b|0[dD][0-9a-fA-F]{16}\b|0[xX][0-9a-fA-F]+U?"
    r"|0[bB][01]+U?|\d+\.\d*(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+|\d+U?))"
    r"|(?P<mark>[\[\]{}(),|+\-]))"
)
_HEADER = re.compile(r"\s*(?:\(([^)]*)\))?\s*([\w$%]+)\s*(?:\(([^)]*)\))?\s*([^{};]*)([{;])")
_VARIABLE = re.compile(
    r"\s*(?P<attributes>(?:\.[a-z]\w*(?:\s*\(\.\w+\)|\s+\d+)?\s*)*)"
    r"(?P<name>[\w$%]+)\s*(?P<dims>(?:\[\s*\w*\s*\])*)\s*(?:=\s*(?P<init>[^;]*))?"
)
_INIT = re.compile(
    r"\s*(?:(?P<number>[-+]?(?:0[fFdDxX][0-9a-fA-F]+|[\d.]+(?:[eE][-+]?\d+)?)U?)"
    r"|(?P<mask>0x[fF]+\()?\s*(?P<generic>generic\()?\s*(?P<name>[A-Za-z_$%][\w$]*)\)*"
    r"\s*(?:(?P<plus>[-+]\s*\d+))?\)*)\s*(?:,|$)"
)
_LINKING = {".visible", ".extern", ".weak", ".common"}
_SPACES = {".global", ".const", ".shared", ".local", ".param"}
_PERFORMANCE = {
    ".maxntid", ".reqntid", ".minnctapersm", ".maxnreg", ".maxnctapersm", ".noreturn",
    ".maxclusterrank", ".explicitcluster", ".reqnctapercluster", ".pragma",
}  # fmt: skip


def literal(text: str) -> Int | Float:
    """A number as PTX writes it."""
    sign = -1 if text[0] == "-" else 1
    body = text.lstrip("+-")
    head = body[:2].lower()
    if head == "0f":
        bits = int(body[2:], 16) ^ (0x80000000 if sign < 0 else 0)
        return Float(struct.unpack("<f", struct.pack("<I", bits))[0], bits32=bits)
    if head == "0d":
        bits = int(body[2:], 16) ^ (1 << 63 if sign < 0 else 0)
        return Float(struct.unpack("<d", struct.pack("<Q", bits))[0], bits64=bits)
    body = body.rstrip("U")
    if head in ("0x", "0b"):
        return Int(sign * int(body, 0))
    if "." in body or "e" in body.lower():
        return Float(sign * float(body))
    octal = len(body) > 1 and body[0] == "0"
    return Int(sign * int(body, 8 if octal else 10))


@dataclass
class Source:
    """Text without comments; position to line."""

    text: str
    starts: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        blank = re.compile(r"[^\n]")

        def keep(match: re.Match[str]) -> str:
            """Strings stay; comments become space, so that positions stay too."""
            return match.group() if match.group()[0] == '"' else blank.sub(" ", match.group())

        self.text = _COMMENT.sub(keep, self.text)
        self.starts = [0] + [m.end() for m in re.finditer("\n", self.text)]

    def line(self, position: int) -> int:
        return bisect.bisect_right(self.starts, position)


class OperandReader:
    """The operands of one instruction."""

    def __init__(self, text: str, line: int) -> None:
        self.line = line
        self.tokens: list[tuple[str, str]] = []
        position = 0
        text = text.rstrip()
        while position < len(text):
            match = _OPERAND.match(text, position)
            if match is None:
                raise PtxError(f"operand not understood: {text[position:]!r}", line)
            self.tokens.append((str(match.lastgroup), match.group(str(match.lastgroup))))
            position = match.end()
        self.at = 0

    def peek(self) -> str:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else ""

    def take(self, expected: str | None = None) -> tuple[str, str]:
        if self.at >= len(self.tokens):
            raise PtxError("operand missing", self.line)
        token = self.tokens[self.at]
        if expected is not None and token[1] != expected:
            raise PtxError(f"expected {expected!r}, not {token[1]!r}", self.line)
        self.at += 1
        return token

    def all(self) -> tuple[Operand, ...]:
        found: list[Operand] = []
        while self.at < len(self.tokens):
            found.append(self.operand())
            if self.at < len(self.tokens):
                self.take(",")
        return tuple(found)

    def operand(self) -> Operand:
        kind, text = self.take()
        if kind == "name":
            first: Operand = Name(text.lstrip("! "), text[0] == "!")
            if self.peek() == "|":
                self.take("|")
                return Pair(first, self.operand())
            return first
        if kind == "number":
            return literal(text)
        if text == "{":
            return Vector(self._until("}"))
        if text == "(":
            return Group(self._until(")"))
        if text == "[":
            return self._address()
        raise PtxError(f"operand not understood: {text!r}", self.line)

    def _until(self, end: str) -> tuple[Operand, ...]:
        items = []
        while self.peek() != end:
            items.append(self.operand())
            if self.peek() != end:
                self.take(",")
        self.take(end)
        return tuple(items)

    def _address(self) -> Address:
        base = self.operand()
        offset = 0
        while self.peek() != "]":
            if self.peek() in "+-":
                sign = -1 if self.take()[1] == "-" else 1
            else:
                sign = 1
            kind, text = self.take()
            value = literal(text) if kind == "number" else None
            if not isinstance(value, Int):
                raise PtxError(f"offset of an address: {text!r}", self.line)
            offset += sign * value.value
        self.take("]")
        return Address(base, offset)


class Parser:
    """One module."""

    def __init__(self, text: str) -> None:
        self.source = Source(text)
        self.text = self.source.text
        self.position = 0
        self.version = (0, 0)
        self.target = ""
        self.address_size = 64
        self.variables: dict[str, Variable] = {}
        self.functions: dict[str, Function] = {}

    def error(self, message: str) -> PtxError:
        return PtxError(message, self.source.line(self.position))

    def skip_space(self) -> None:
        match = _SPACE.match(self.text, self.position)
        assert match is not None
        self.position = match.end()

    def parse(self) -> Parser:
        linking = ""
        while True:
            self.skip_space()
            if self.position >= len(self.text):
                break
            match = _DIRECTIVE.match(self.text, self.position)
            if match is None:
                raise self.error(f"not PTX: {self.text[self.position : self.position + 40]!r}")
            word = match.group()
            if word in _LINKING:
                linking = word
                self.position = match.end()
                continue
            if word in (".entry", ".func"):
                self.position = match.end()
                self.function(word == ".entry")
            elif word in _SPACES:
                for variable in self.variable(linking == ".extern"):
                    self.variables[variable.name] = variable
            else:
                self.module_directive(word, match.end())
            linking = ""
        if not self.target:
            raise self.error("no .target: not a PTX module")
        return self

    def rest_of_line(self, start: int) -> str:
        end = self.text.find("\n", start)
        end = len(self.text) if end < 0 else end
        self.position = end
        return self.text[start:end].strip()

    def module_directive(self, word: str, end: int) -> None:
        if word == ".version":
            major, minor = self.rest_of_line(end).split(".")
            self.version = (int(major), int(minor))
        elif word == ".target":
            self.target = self.rest_of_line(end)
        elif word == ".address_size":
            self.address_size = int(self.rest_of_line(end))
            if self.address_size != 64:
                raise self.error("only 64-bit addresses are known")
        elif not self.debug_directive(word, end):
            raise self.error(f"unknown directive {word}")

    def debug_directive(self, word: str, end: int) -> bool:
        """Directives without effect on what is computed."""
        if word in (".loc", ".file"):
            self.rest_of_line(end)
            return True
        if word == ".section":
            self.position = self.text.index("}", self.text.index("{", end)) + 1
            return True
        if word == ".pragma":
            self.position = self.text.index(";", end) + 1
            return True
        return False

    def variable(self, extern: bool = False) -> list[Variable]:
        end = self.text.find(";", self.position)
        if end < 0:
            raise self.error("declaration without an end")
        line = self.source.line(self.position)
        text = self.text[self.position : end]
        self.position = end + 1
        parts = [text] if "=" in text or "[" in text else text.split(",")
        first = parse_variable(parts[0], line, extern)
        return [first] + [
            Variable(line, first.space, p.strip(), first.align, first.size, first.type, extern)
            for p in parts[1:]
        ]

    def function(self, entry: bool) -> None:
        match = _HEADER.match(self.text, self.position)
        if match is None:
            raise self.error("function header not understood")
        line = self.source.line(match.start(2))
        results, name, parameters, directives, end = match.groups()
        self.position = match.end()
        function = Function(line, name, entry)
        function.results = [parse_variable(p, line) for p in _split(results)]
        function.parameters = [parse_variable(p, line) for p in _split(parameters)]
        function.directives = parse_directives(directives, line)
        if end == "{":
            function.body = self.body()
        elif name in self.functions and self.functions[name].body is not None:
            return
        self.functions[name] = function

    def body(self) -> list[Statement]:
        """Statements up to the brace that closes the function."""
        found: list[Statement] = []
        depth = 1
        while True:
            self.skip_space()
            if self.position >= len(self.text):
                raise self.error("function without an end")
            char = self.text[self.position]
            if char in "{}":
                depth += 1 if char == "{" else -1
                line = self.source.line(self.position)
                self.position += 1
                if depth == 0:
                    return found
                found.append(Scope(line, char == "{"))
            elif char == ".":
                self.body_directive(found)
            else:
                found.append(self.statement())

    def body_directive(self, found: list[Statement]) -> None:
        match = _DIRECTIVE.match(self.text, self.position)
        word = match.group() if match else "."
        end = match.end() if match else self.position
        if word == ".reg":
            stop = self.text.index(";", end)
            line = self.source.line(self.position)
            found.append(parse_registers(self.text[end:stop], line))
            self.position = stop + 1
        elif word in _SPACES:
            found += self.variable()
        elif not self.debug_directive(word, end):
            raise self.error(f"unknown directive {word}")

    def statement(self) -> Statement:
        line = self.source.line(self.position)
        match = _LABEL.match(self.text, self.position)
        if match is not None:
            self.position = match.end()
            return self.targets(match.group(1), line) or Label(line, match.group(1))
        match = _INSTRUCTION.match(self.text, self.position)
        if match is None:
            shown = self.text[self.position : self.position + 60].split("\n")[0]
            raise PtxError(f"statement not understood: {shown!r}", line)
        self.position = match.end()
        negated, guard, op, operands = match.groups()
        head, *modifiers = op.split(".")
        guarded = Guard(guard, negated == "!") if guard else None
        reader = OperandReader(operands, line)
        return Instruction(line, head, tuple(modifiers), reader.all(), guarded)

    def targets(self, name: str, line: int) -> Targets | None:
        self.skip_space()
        word = ".branchtargets"
        if not self.text.startswith(word, self.position):
            return None
        end = self.text.index(";", self.position)
        labels = self.text[self.position + len(word) : end].split(",")
        self.position = end + 1
        return Targets(line, name, tuple(label.strip() for label in labels))


def _split(text: str | None) -> list[str]:
    return [p for p in (text or "").split(",") if p.strip()]


def parse_registers(text: str, line: int) -> Registers:
    words = text.split(None, 1)
    kind = TYPES.get(words[0].lstrip("."))
    if kind is None or kind.kind == "x" or len(words) < 2:
        raise PtxError(f"registers of type {words[0]}", line)
    names: list[tuple[str, int | None]] = []
    for part in words[1].split(","):
        match = re.fullmatch(r"\s*([\w$%]+)\s*(?:<\s*(\d+)\s*>)?\s*", part)
        if match is None:
            raise PtxError(f"register name {part.strip()!r}", line)
        names.append((match.group(1), int(match.group(2)) if match.group(2) else None))
    return Registers(line, kind, tuple(names))


def parse_directives(text: str, line: int) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for word, rest in re.findall(r"(\.\w+)\s*((?:\"[^\"]*\"|[\d,\s])*)", text):
        if word not in _PERFORMANCE:
            raise PtxError(f"unknown directive {word}", line)
        if word != ".pragma":
            found[word[1:]] = tuple(int(n) for n in rest.replace(",", " ").split())
    return found


def parse_variable(text: str, line: int, extern: bool = False) -> Variable:
    """`.global .align 4 .b8 table[16] = {1, 2}`"""
    match = _VARIABLE.fullmatch(text.strip())
    if match is None:
        raise PtxError(f"declaration not understood: {text.strip()!r}", line)
    space, kind, width, align = "", None, 1, 0
    words = match["attributes"].split()
    while words:
        word = words.pop(0)
        if word in _SPACES and not space:
            space = word[1:]
        elif word == ".align":
            align = int(words.pop(0))
        elif word in (".v2", ".v4"):
            width = int(word[2:])
        elif word == ".ptr" or (word in _SPACES and space == "param"):
            # what a pointer parameter points to is a hint
            if word == ".ptr" and ".align" in words:
                at = words.index(".align")
                del words[at : at + 2]
        elif word[1:] in TYPES:
            kind = TYPES[word[1:]]
        else:
            raise PtxError(f"unknown attribute {word} of a variable", line)
    if kind is None or not space:
        raise PtxError(f"declaration without a type: {text.strip()!r}", line)
    count, open_ended = width, False
    for dim in re.findall(r"\[\s*(\w*)\s*\]", match["dims"]):
        open_ended |= not dim
        count *= int(dim, 0) if dim else 1
    data, relocations = parse_initialiser(match["init"], kind, line)
    size = 0 if open_ended and extern else count * kind.size
    if open_ended and not extern:
        size = len(data)
    align = align or kind.size * width
    name = match["name"]
    return Variable(line, space, name, align, size, kind, extern, data, relocations)


def parse_initialiser(
    text: str | None, kind: Type, line: int
) -> tuple[bytes, tuple[Relocation, ...]]:
    data = bytearray()
    relocations: list[Relocation] = []
    body = (text or "").replace("{", " ").replace("}", " ").strip()
    position = 0
    while position < len(body):
        match = _INIT.match(body, position)
        if match is None or match.end() == position:
            raise PtxError(f"initialiser not understood: {body[position:]!r}", line)
        position = match.end()
        if match["number"]:
            data += pack(literal(match["number"]), kind, line)
            continue
        if match["mask"]:
            raise PtxError("bytes of an address as an initialiser are not known", line)
        addend = int((match["plus"] or "0").replace(" ", ""))
        place = Relocation(len(data), kind.size, match["name"], addend, bool(match["generic"]))
        relocations.append(place)
        data += bytes(kind.size)
    return bytes(data), tuple(relocations)


def pack(value: Int | Float, kind: Type, line: int) -> bytes:
    if isinstance(value, Int):
        if kind.kind == "f" and kind.name != "bf16":
            raise PtxError("an integer initialises a float", line)
        return (value.value & ((1 << kind.bits) - 1)).to_bytes(kind.size, "little")
    if kind.kind != "f":
        raise PtxError(f"a float initialises {kind.name}", line)
    return struct.pack({2: "<e", 4: "<f", 8: "<d"}[kind.size], value.value)
