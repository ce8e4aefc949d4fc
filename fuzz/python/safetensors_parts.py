"""Safetensors files as header, NUL, data: mutated as JSON, a header still has the length that the file says."""


def take_apart(file: bytes) -> bytes:
    start = 8 + int.from_bytes(file[:8], "little")
    return file[8:start] + b"\0" + file[start:]


def put_together(parts: bytes) -> bytes:
    header, _, data = parts.partition(b"\0")
    return len(header).to_bytes(8, "little") + header + data
