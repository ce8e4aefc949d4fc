"""Makes an android.jar to compile against of Android's own list of its public API: api_jar.py CURRENT_TXT JAR.

The list, frameworks/base/core/api/current.txt, has every public class with its members, types and constants. A class
file without code is all of that, and all that a compiler reads."""

from __future__ import annotations

import re
import struct
import sys
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

FLAGS = {
    "public": 0x1,
    "protected": 0x4,
    "static": 0x8,
    "final": 0x10,
    "abstract": 0x400,
    "synchronized": 0,
    "default": 0,
    "volatile": 0x40,
    "transient": 0x80,
    "native": 0,
    "strictfp": 0,
    "sealed": 0,
}
INTERFACE, ABSTRACT, ANNOTATION, ENUM, VARARGS, SUPER, STATIC = 0x200, 0x400, 0x2000, 0x4000, 0x80, 0x20, 0x8
PRIMITIVES = {
    "boolean": "Z",
    "byte": "B",
    "char": "C",
    "double": "D",
    "float": "F",
    "int": "I",
    "long": "J",
    "short": "S",
    "void": "V",
}
TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|\.\.\.|[\w$.]*[\w$]|[^\s\w]')


def tokens_of(line: str) -> list[str]:
    """Words and signs, without annotations and the comment behind."""
    found, result, i = TOKEN.findall(line), [], 0
    while i < len(found):
        if found[i] == "/" and found[i + 1 : i + 2] == ["/"]:
            break
        if found[i] != "@" or found[i + 1] == "interface":
            result.append(found[i])
            i += 1
            continue
        i += 2  # the sign and the name
        if i < len(found) and found[i] == "(":
            depth = 0
            while True:
                depth += {"(": 1, ")": -1}.get(found[i], 0)
                i += 1
                if depth == 0:
                    break
    return result


def binary_name(name: str) -> str:
    """Such as java/util/Map$Entry of java.util.Map.Entry: packages begin with small letters."""
    if "." not in name:
        return "java/lang/" + name
    parts = name.split(".")
    first = next(i for i, part in enumerate(parts) if part[0].isupper())
    return "/".join([*parts[:first], "$".join(parts[first:])])


@dataclass
class Type:
    descriptor: str
    signature: str


@dataclass
class Reader:
    """Reads types from tokens; `variables` has the erasure of type variables in scope."""

    tokens: list[str]
    variables: dict[str, str]
    at: int = 0

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def next(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1]

    def accept(self, token: str) -> bool:
        found = self.peek() == token
        self.at += found
        return found

    def type(self) -> Type:
        name = self.next()
        if name in PRIMITIVES:
            type_ = Type(PRIMITIVES[name], PRIMITIVES[name])
        elif name in self.variables:
            type_ = Type(self.variables[name], f"T{name};")
        else:
            binary = binary_name(name)
            type_ = Type(f"L{binary};", f"L{binary}{self.arguments()};")
            while self.peek().startswith(".") and self.peek() != "...":  # Outer<T>.Inner, erased to its name
                inner = self.next() + (self.next() if self.tokens[self.at - 1] == "." else "")
                binary += "$" + inner.strip(".").replace(".", "$")
                self.arguments()
                type_ = Type(f"L{binary};", f"L{binary};")
        while True:
            if self.accept("["):
                self.accept("]")
            elif not self.accept("..."):
                return type_
            type_ = Type("[" + type_.descriptor, "[" + type_.signature)

    def arguments(self) -> str:
        if not self.accept("<"):
            return ""
        text = "<"
        while not self.accept(">"):
            if self.accept("?"):
                text += "+" + self.type().signature if self.accept("extends") else ""
                text += "-" + self.type().signature if self.accept("super") else ""
                text += "*" if self.peek() in ",>" and text[-1] in "<;*" and self.tokens[self.at - 1] == "?" else ""
            else:
                text += self.type().signature
            self.accept(",")
        return text + ">"

    def parameters(self) -> str:
        """Type parameters, if any, which are variables from here on; their signature."""
        if not self.accept("<"):
            return ""
        begin, depth = self.at, 0
        while depth >= 0:  # names first, since bounds may name each other
            token = self.next()
            depth += {"<": 1, ">": -1}.get(token, 0)
            if depth == 0 and self.tokens[self.at - 2] in ("<", ","):
                self.variables[token] = "Ljava/lang/Object;"
        self.at = begin
        text = "<"
        while not self.accept(">"):
            name = self.next()
            text += name
            bounds = []
            if self.accept("extends"):
                bounds.append(self.type())
                while self.accept("&"):
                    bounds.append(self.type())
                self.variables[name] = bounds[0].descriptor
            text += "".join(":" + bound.signature for bound in bounds) or ":Ljava/lang/Object;"
            self.accept(",")
        return text + ">"

    def flags(self) -> int:
        flags = 0
        while self.peek() in FLAGS:
            flags |= FLAGS[self.next()]
        return flags


@dataclass
class Member:
    flags: int
    name: str
    type: Type
    deprecated: bool
    throws: list[str] = field(default_factory=list)
    value: str | None = None


@dataclass
class Class:
    name: str
    flags: int
    parent: str
    interfaces: list[str]
    signature: str
    variables: dict[str, str]
    deprecated: bool
    fields: list[Member] = field(default_factory=list)
    methods: list[Member] = field(default_factory=list)
    inner: list[Class] = field(default_factory=list)

    @property
    def outer(self) -> str | None:
        return self.name.rpartition("$")[0] or None


def read_class(package: str, line: str) -> Class:
    reader = Reader(tokens_of(line.rstrip("{ ")), {})
    flags = reader.flags()
    if reader.accept("@"):
        flags |= ANNOTATION
    kind = reader.next()
    if kind in ("interface", "@interface"):
        flags |= INTERFACE | ABSTRACT
    elif kind == "enum":
        flags |= ENUM
    else:
        assert kind == "class", line
    name = binary_name(f"{package}.{reader.next()}")
    parameters = reader.parameters()
    parents: list[Type] = []
    interfaces: list[Type] = []
    while reader.peek():
        word = reader.next()
        assert word in ("extends", "implements"), line
        types = parents if word == "extends" and not flags & INTERFACE else interfaces
        while reader.peek() not in ("", "implements"):
            types.append(reader.type())
            reader.accept(",")
    if flags & ANNOTATION:
        interfaces.append(Type("Ljava/lang/annotation/Annotation;", "Ljava/lang/annotation/Annotation;"))
    standard = f"Ljava/lang/Enum<L{name};>;" if flags & ENUM else "Ljava/lang/Object;"
    parent = parents[0] if parents else Type(re.sub("<.*>", "", standard), standard)
    signature = parameters + parent.signature + "".join(i.signature for i in interfaces)
    return Class(
        name,
        flags,
        parent.descriptor[1:-1],
        [i.descriptor[1:-1] for i in interfaces],
        signature,
        reader.variables,
        "@Deprecated" in line,
    )


def read_method(owner: Class, line: str) -> Member:
    reader = Reader(tokens_of(line), dict(owner.variables))
    constructor = reader.next() == "ctor"
    words = line.split("(")[0].split()
    flags = reader.flags()
    generics = reader.parameters()
    flags |= reader.flags()
    result = Type("V", "V") if constructor else reader.type()
    name = reader.next()
    if constructor:
        name, generics = "<init>", generics or reader.parameters()
    assert reader.accept("("), line
    parameters = []
    while not reader.accept(")"):
        parameters.append(reader.type())
        flags |= VARARGS if reader.tokens[reader.at - 1] == "..." else 0
        if reader.peek() not in (",", ")"):
            reader.next()  # a parameter's name
        reader.accept(",")
    throws = []
    if reader.accept("throws"):
        while reader.peek() != ";":
            throws.append(reader.type().descriptor[1:-1])
            reader.accept(",")
    if owner.flags & INTERFACE and not {"default", "static"} & set(words):
        flags |= ABSTRACT
    descriptor = f"({''.join(p.descriptor for p in parameters)}){result.descriptor}"
    signature = f"{generics}({''.join(p.signature for p in parameters)}){result.signature}"
    return Member(flags, name, Type(descriptor, signature), "@Deprecated" in line, throws)


def read_field(owner: Class, line: str) -> Member:
    reader = Reader(tokens_of(line), dict(owner.variables))
    constant = reader.next() == "enum_constant"
    flags = reader.flags() | (ENUM if constant else 0)
    type_ = reader.type()
    member = Member(flags, reader.next(), type_, "@Deprecated" in line)
    value = re.search(r" = (.*);(?: //.*)?$", line)
    if value and type_.descriptor in ("I", "J", "S", "B", "C", "Z", "F", "D", "Ljava/lang/String;"):
        member.value = value.group(1)
    return member


def read_api(text: str) -> dict[str, Class]:
    classes: dict[str, Class] = {}
    package = ""
    current = None
    for line in text.splitlines():
        stripped = line.strip()
        if line.startswith("package "):
            package = line.split()[1]
        elif line.startswith("    ") and current:
            if stripped.startswith(("ctor ", "method ")):
                current.methods.append(read_method(current, stripped))
            else:
                current.fields.append(read_field(current, stripped))
        elif line.startswith("  ") and line.endswith("{"):
            current = read_class(package, stripped)
            classes[current.name] = current
    for entry in classes.values():
        if entry.outer in classes:
            classes[entry.outer].inner.append(entry)
    return classes


class Pool:
    """A class file's constants."""

    def __init__(self) -> None:
        self.bytes = b""
        self.places: dict[bytes, int] = {}
        self.next = 1

    def add(self, entry: bytes, slots: int = 1) -> int:
        if entry not in self.places:
            self.places[entry] = self.next
            self.bytes += entry
            self.next += slots
        return self.places[entry]

    def utf8(self, text: str) -> int:
        data = text.encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")
        return self.add(b"\x01" + struct.pack(">H", len(data)) + data)

    def name(self, name: str) -> int:
        return self.add(b"\x07" + struct.pack(">H", self.utf8(name)))

    def constant(self, descriptor: str, text: str) -> int:
        if descriptor == "Ljava/lang/String;":
            unescaped = re.sub(r"\\u([0-9a-fA-F]{4})|\\(.)", unescape, text[1:-1])
            return self.add(b"\x08" + struct.pack(">H", self.utf8(unescaped)))
        if descriptor in "FD":
            number = {"(0.0f/0.0f)": "nan", "(0.0/0.0)": "nan"}.get(text, text)
            number = {"(1.0f/0.0f)": "inf", "(1.0/0.0)": "inf"}.get(number, number)
            number = {"(-1.0f/0.0f)": "-inf", "(-1.0/0.0)": "-inf"}.get(number, number)
            value = float(number.rstrip("fFdD") if number not in ("inf", "-inf", "nan") else number)
            if descriptor == "F":
                return self.add(b"\x04" + struct.pack(">f", value))
            return self.add(b"\x06" + struct.pack(">d", value), 2)
        if descriptor == "J":
            return self.add(b"\x05" + struct.pack(">q", int(text.rstrip("lL"), 0)), 2)
        number = {"true": "1", "false": "0"}.get(text, text)
        return self.add(b"\x03" + struct.pack(">i", int(number, 0)))


def unescape(match: re.Match[str]) -> str:
    if match.group(1):
        return chr(int(match.group(1), 16))
    return {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "0": "\0"}.get(match.group(2), match.group(2))


def attribute(pool: Pool, name: str, data: bytes) -> bytes:
    return struct.pack(">HI", pool.utf8(name), len(data)) + data


def written(pool: Pool, attributes: list[bytes]) -> bytes:
    return struct.pack(">H", len(attributes)) + b"".join(attributes)


def member_bytes(pool: Pool, member: Member) -> bytes:
    attributes = []
    if member.type.signature != member.type.descriptor:
        attributes.append(attribute(pool, "Signature", struct.pack(">H", pool.utf8(member.type.signature))))
    if member.deprecated:
        attributes.append(attribute(pool, "Deprecated", b""))
    if member.throws:
        indices = [pool.name(name) for name in member.throws]
        attributes.append(attribute(pool, "Exceptions", struct.pack(f">{len(indices) + 1}H", len(indices), *indices)))
    if member.value is not None:
        place = pool.constant(member.type.descriptor, member.value)
        attributes.append(attribute(pool, "ConstantValue", struct.pack(">H", place)))
    head = struct.pack(">HHH", member.flags, pool.utf8(member.name), pool.utf8(member.type.descriptor))
    return head + written(pool, attributes)


def mentioned(entry: Class, classes: dict[str, Class]) -> list[str]:
    """Nested classes that the class names, those around it and its own, an outer one before its inner ones."""
    text = " ".join([entry.name, entry.parent, *entry.interfaces])
    text += " ".join(m.type.descriptor for m in [*entry.fields, *entry.methods])
    names = {i.name for i in entry.inner}
    for name in re.findall(r"[\w/$]+\$[\w$]+", re.sub(r"[\[;()]L?", " ", text)):
        name = name.lstrip("L") if name not in classes and name[1:] in classes else name
        while "$" in name:
            names.add(name)
            name = name.rpartition("$")[0]
    return sorted(names, key=lambda name: name.count("$"))


def class_bytes(entry: Class, classes: dict[str, Class]) -> bytes:
    pool = Pool()
    interfaces = [pool.name(name) for name in entry.interfaces]
    names = pool.name(entry.name), pool.name(entry.parent)
    members = [[member_bytes(pool, m) for m in group] for group in (entry.fields, entry.methods)]
    attributes = [attribute(pool, "Signature", struct.pack(">H", pool.utf8(entry.signature)))]
    if entry.deprecated:
        attributes.append(attribute(pool, "Deprecated", b""))
    inner = []
    for name in mentioned(entry, classes):
        outer, _, simple = name.rpartition("$")
        flags = classes[name].flags if name in classes else 0x1 | STATIC
        inner.append(struct.pack(">4H", pool.name(name), pool.name(outer), pool.utf8(simple), flags))
    if inner:
        attributes.append(attribute(pool, "InnerClasses", struct.pack(">H", len(inner)) + b"".join(inner)))
    flags = entry.flags & ~(STATIC | 0x4) | (0 if entry.flags & INTERFACE else SUPER)
    body = struct.pack(">3H", flags, *names) + struct.pack(f">{len(interfaces) + 1}H", len(interfaces), *interfaces)
    for group in members:
        body += written(pool, group)
    body += written(pool, attributes)
    return struct.pack(">IHHH", 0xCAFEBABE, 0, 52, pool.next) + pool.bytes + body


def main(source: Path, jar: Path) -> None:
    classes = read_api(source.read_text(encoding="utf-8"))
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, entry in classes.items():
            archive.writestr(f"{name}.class", class_bytes(entry, classes))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
